package deploy

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// released returns the files of `make release` that match a pattern. The test is skipped
// if there are none.
func released(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(packages, pattern))
	if err != nil || len(files) == 0 {
		t.Skipf("no files %s in bin/release: run make test-release", pattern)
	}
	return files
}

func digest(t *testing.T, path string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(readFile(t, path)))
	return hex.EncodeToString(sum[:])
}

// TestFormulaNamesTheArchives compares the formula with the archives, and has it parsed
// where there is Ruby.
func TestFormulaNamesTheArchives(t *testing.T) {
	formula := released(t, "servetrace.rb")[0]
	var want, got []string
	for _, archive := range released(t, "*.tar.gz") {
		want = append(want, filepath.Base(archive)+" "+digest(t, archive))
	}
	matcher := regexp.MustCompile(`(?m)url ".*/(.+)"\n +sha256 "(\w+)"$`)
	for _, m := range matcher.FindAllStringSubmatch(readFile(t, formula), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if !slices.Equal(want, got) {
		t.Errorf("the formula has %q, want %q", got, want)
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		run(t, ruby, "-wc", formula)
	}
}

// TestChecksums holds the list of digests complete. If it is signed, the signature fits
// the public key.
func TestChecksums(t *testing.T) {
	list := released(t, "checksums.txt")[0]
	var want strings.Builder
	for _, path := range released(t, "*") {
		if name := filepath.Base(path); !slices.Contains([]string{"checksums.txt", "checksums.txt.sig", "checksums.txt.sigstore.json", "cosign.pub"}, name) {
			want.WriteString(digest(t, path) + "  " + name + "\n")
		}
	}
	got := readFile(t, list)
	if got != want.String() {
		t.Errorf("checksums.txt has\n%swant\n%s", got, want.String())
	}
	signature, err := os.ReadFile(list + ".sig")
	if errors.Is(err, os.ErrNotExist) {
		t.Log("not signed: make test-release COSIGN_KEY=...")
		return
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signature)))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(readFile(t, filepath.Join(packages, "cosign.pub"))))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(got))
	if !ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), sum[:], raw) {
		t.Error("the signature does not fit cosign.pub")
	}
}

// TestLicensesOfAllModules compares the texts in the archive with the modules of its
// executables.
func TestLicensesOfAllModules(t *testing.T) {
	folder := unpackArchive(t)
	texts := readFile(t, filepath.Join(folder, "THIRD_PARTY_LICENSES"))
	for _, path := range executables(t, folder) {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range info.Deps {
			header := strings.Repeat("=", 80) + "\n" + module.Path + " " + module.Version + "\n"
			_, text, found := strings.Cut(texts, header)
			if text, _, _ = strings.Cut(text, strings.Repeat("=", 80)+"\n"); !found || len(text) < 500 {
				t.Errorf("%s: %d bytes of licence for %s %s", filepath.Base(path), len(text), module.Path, module.Version)
			}
		}
	}
	for _, name := range []string{"THIRD_PARTY_LICENSES", "NOTICE"} {
		if !strings.Contains(readFile(t, filepath.Join(folder, name)), "hashicorp/yamux") {
			t.Errorf("%s lacks yamux, whose source must be named", name)
		}
	}
}

// TestBillsOfMaterialsOfThePackage compares the bills with the modules of the executables.
func TestBillsOfMaterialsOfThePackage(t *testing.T) {
	platform := "_" + runtime.GOOS + "_" + runtime.GOARCH + ".cdx.json"
	listed := map[string]bool{}
	for _, path := range released(t, "*"+platform) {
		var bill struct {
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal([]byte(readFile(t, path)), &bill); err != nil {
			t.Fatal(err)
		}
		for _, c := range bill.Components {
			listed[c.Name+" "+c.Version] = true
		}
	}
	for _, path := range executables(t, unpackArchive(t)) {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range info.Deps {
			if !listed[module.Path+" "+module.Version] {
				t.Errorf("no bill of materials has %s %s of %s", module.Path, module.Version, filepath.Base(path))
			}
		}
	}
}

// unpackArchive unpacks the archive for this machine, and returns its folder.
func unpackArchive(t *testing.T) string {
	t.Helper()
	path := released(t, "*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz")[0]
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read only
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	untar(t, zip, folder)
	return filepath.Join(folder, strings.TrimSuffix(filepath.Base(path), ".tar.gz"))
}

// executables returns the command and the plugins of an archive.
func executables(t *testing.T, folder string) []string {
	t.Helper()
	plugins, err := filepath.Glob(filepath.Join(folder, "plugins/*"))
	if err != nil || len(plugins) != len(stock) {
		t.Fatalf("plugins %v, %v", plugins, err)
	}
	return append(plugins, filepath.Join(folder, "servetrace"))
}
