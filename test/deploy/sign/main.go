// Command sign signs a file of a release in the forms of cosign sign-blob: FILE.sigstore.json
// is a bundle, FILE.sig has the signature alone, for cosign before 3, and cosign.pub beside
// FILE is the public key.
//
//	sign -key cosign.key FILE
//
// The key is of cosign generate-key-pair. COSIGN_PASSWORD is its password. The command
// sends nothing to a transparency log. Users verify the signature with
//
//	cosign verify-blob --key cosign.pub --insecure-ignore-tlog --bundle FILE.sigstore.json FILE
//
// cosign itself would take some twenty minutes to build. deploy/release.sh runs the
// command. Open this file first: there is no other.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

func main() {
	if err := run(os.Args[1:], os.Getenv); err != nil { //nolint:forbidigo // the only variable
		fmt.Fprintln(os.Stderr, "sign:", err)
		os.Exit(1)
	}
}

func run(args []string, getenv func(string) string) error {
	flags := flag.NewFlagSet("sign", flag.ContinueOnError)
	keyFile := flags.String("key", "", "the private key, of cosign generate-key-pair")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *keyFile == "" || flags.NArg() != 1 {
		return errors.New("want sign -key KEY FILE")
	}
	text, err := os.ReadFile(*keyFile)
	if err != nil {
		return err
	}
	key, err := readKey(text, []byte(getenv("COSIGN_PASSWORD")))
	if err != nil {
		return fmt.Errorf("the key %s: %w", *keyFile, err)
	}
	return sign(key, flags.Arg(0))
}

// sign writes the signature of a file in both forms, and the public key.
func sign(key *ecdsa.PrivateKey, file string) error {
	data, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err
	}
	digest := sha256.Sum256(data)
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	hint := sha256.Sum256(public)
	bundle, err := json.Marshal(newBundle(digest[:], signature, base64.StdEncoding.EncodeToString(hint[:])))
	if err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(signature)
	return errors.Join(
		os.WriteFile(file+".sigstore.json", append(bundle, '\n'), 0o644),
		os.WriteFile(file+".sig", []byte(text), 0o644),
		os.WriteFile(filepath.Join(filepath.Dir(file), "cosign.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644))
}

// newBundle returns a bundle with a signature by a key:
// https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto
func newBundle(digest, signature []byte, hint string) map[string]any {
	return map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": hint}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": digest},
			"signature":     signature,
		},
	}
}

// keyType is the type of cosign's private keys in PEM. Their content is encrypted with
// scrypt and NaCl's secretbox.
const keyType = "ENCRYPTED SIGSTORE PRIVATE KEY"

func readKey(text, password []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyType {
		return nil, fmt.Errorf("want a PEM block %q, as cosign generate-key-pair writes", keyType)
	}
	der, err := encrypted.Decrypt(block.Bytes, password)
	if err != nil {
		return nil, fmt.Errorf("%w; is COSIGN_PASSWORD its password?", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T: want an ECDSA key, as cosign generate-key-pair makes", key)
	}
	return own, nil
}
