package pythonplugin

import (
	"bytes"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

var update = flag.Bool("update", false, "write the contract into python/servetrace/plugin.py anew")

// module is the file with the contract's descriptor. contract matches its place.
var module = filepath.Join("..", "..", "python", "servetrace", "plugin.py")

var contract = regexp.MustCompile(`(?s)_CONTRACT = """\n(.*?)"""`)

// TestContractIsFresh compares the descriptor in the Python module with the contract. It
// needs no Python.
func TestContractIsFresh(t *testing.T) {
	source, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(pluginv1.File_servetrace_plugin_v1_plugin_proto)
	if *update {
		if err := os.WriteFile(module, contract.ReplaceAllLiteral(source, encode(t, want)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	found := contract.FindSubmatch(source)
	if found == nil {
		t.Fatalf("%s has no text that matches %v", module, contract)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(found[1]), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	got := new(descriptorpb.FileDescriptorProto)
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s differs from plugin.proto; run: go test ./examples/python-plugin -run %s -update", module, t.Name())
	}
}

// encode returns the assignment that contract matches.
func encode(t *testing.T, file *descriptorpb.FileDescriptorProto) []byte {
	t.Helper()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString("_CONTRACT = \"\"\"\n")
	const width = 100
	for text := base64.StdEncoding.EncodeToString(raw); text != ""; {
		n := min(width, len(text))
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	out.WriteString(`"""`)
	return out.Bytes()
}
