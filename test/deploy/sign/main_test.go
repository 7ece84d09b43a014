package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The keys of the tests were made by cosign v2.6.5, with an empty password. They sign
// nothing else.
const (
	privateKey = "testdata/empty-password.key"
	publicKey  = "testdata/empty-password.pub"
)

func noPassword(string) string { return "" }

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSign signs with a key of cosign. The signature fits the public key that cosign has
// written, and cosign verifies both forms, if there is a cosign.
func TestSign(t *testing.T) {
	file := filepath.Join(t.TempDir(), "checksums.txt")
	if err := os.WriteFile(file, []byte("0123  servetrace.deb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-key", privateKey, file}, noPassword); err != nil {
		t.Fatal(err)
	}
	public := readFile(t, publicKey)
	if got := readFile(t, filepath.Join(filepath.Dir(file), "cosign.pub")); !bytes.Equal(got, public) {
		t.Errorf("the public key is\n%s\nwant\n%s", got, public)
	}
	signature, err := base64.StdEncoding.DecodeString(string(readFile(t, file+".sig")))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(public)
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(readFile(t, file))
	if !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), digest[:], signature) {
		t.Error("the signature does not fit the key")
	}
	var bundle struct {
		VerificationMaterial struct{ PublicKey struct{ Hint []byte } }
		MessageSignature     struct {
			MessageDigest struct{ Digest []byte }
			Signature     []byte
		}
	}
	if err := json.Unmarshal(readFile(t, file+".sigstore.json"), &bundle); err != nil {
		t.Fatal(err)
	}
	hint := sha256.Sum256(block.Bytes)
	got := bundle.MessageSignature
	if !bytes.Equal(got.Signature, signature) || !bytes.Equal(got.MessageDigest.Digest, digest[:]) || !bytes.Equal(bundle.VerificationMaterial.PublicKey.Hint, hint[:]) {
		t.Errorf("the bundle is %+v, want signature %x, digest %x and hint %x", bundle, signature, digest, hint)
	}
	cosign, err := exec.LookPath("cosign")
	if err != nil {
		t.Log("no cosign: its own verification is left out")
		return
	}
	// A key needs no root of trust, but cosign wants a file of them with a bundle.
	roots := filepath.Join(t.TempDir(), "root.json")
	if err := os.WriteFile(roots, []byte(`{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	forms := [][]string{
		{"--signature", file + ".sig"},
		{"--bundle", file + ".sigstore.json", "--new-bundle-format", "--trusted-root", roots},
	}
	verify := func(form []string) error {
		args := append([]string{"verify-blob", "--key", publicKey, "--insecure-ignore-tlog"}, form...)
		out, err := exec.Command(cosign, append(args, file)...).CombinedOutput()
		t.Logf("cosign %q: %s", args, out)
		return err
	}
	for _, form := range forms {
		if err := verify(form); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(file, []byte("4567  servetrace.deb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		if verify(form) == nil {
			t.Errorf("cosign accepts a changed file with %q", form)
		}
	}
}

// TestSignRefuses: nothing is written, and the error has the reason.
func TestSignRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "checksums.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     []string
		password string
		want     string
	}{
		{[]string{file}, "", "want sign -key KEY FILE"},
		{[]string{"-key", privateKey}, "", "want sign -key KEY FILE"},
		{[]string{"-key", "testdata/missing", file}, "", "no such file"},
		{[]string{"-key", publicKey, file}, "", `want a PEM block "ENCRYPTED SIGSTORE PRIVATE KEY"`},
		{[]string{"-key", privateKey, file}, "wrong", "is COSIGN_PASSWORD its password?"},
		{[]string{"-key", privateKey, file + ".missing"}, "", "no such file"},
	} {
		err := run(c.args, func(string) string { return c.password })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("there are %q", left)
	}
}
