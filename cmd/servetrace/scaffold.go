package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/mod/module"

	"github.com/servetrace/servetrace/host"
)

// templates are the files of a new plugin. The folders exporter and processor have the files
// for one kind of plugin, and the other files are for both kinds. The names of the written
// files lack ".tmpl". The delimiters of template actions are [[ and ]], because Go code has
// many braces.
//
//go:embed templates
var templates embed.FS

// kind is the kind of a plugin: a value of --kind.
type kind string

const (
	kindProcessor kind = "processor"
	kindExporter  kind = "exporter"
)

// scaffold describes a plugin to write. The templates read its exported fields.
type scaffold struct {
	// Name is the name of the plugin and of its executable.
	Name   string
	Kind   kind
	Module string // path of the module
	Dir    string // folder to write to
	// Replace is the folder of a clone of servetrace to build against. If it is empty, the
	// method base chooses a release or a clone.
	Replace string
}

// Prefix returns the prefix of the plugin's variables, such as "TENANT_".
func (s scaffold) Prefix() string {
	return strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")) + "_"
}

// Setting returns the variables, for a shell, with which a service uses the plugin.
func (s scaffold) Setting() string {
	if s.Kind == kindProcessor {
		return host.EnvProcessors + "=$PWD/" + s.Name + " " + host.EnvPlugins + "=console"
	}
	return host.EnvPlugins + "=$PWD/" + s.Name
}

// pluginName matches the names that pluginsdk allows as Spec.Name.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// longestName is the host's limit for the name of a plugin, in bytes.
const longestName = 63

// settle sets the defaults of empty fields. Its error names all invalid fields.
func (s *scaffold) settle() error {
	var errs []error
	if !pluginName.MatchString(s.Name) || len(s.Name) > longestName {
		errs = append(errs, fmt.Errorf("name %q: want lower-case letters, digits and dashes, beginning with a letter, %d at most", s.Name, longestName))
	}
	if s.Kind == "" {
		errs = append(errs, fmt.Errorf("--kind is required: want %s or %s", kindProcessor, kindExporter))
	}
	if s.Module == "" {
		s.Module = "example.org/" + s.Name
	} else if module.CheckImportPath(s.Module) != nil {
		errs = append(errs, fmt.Errorf("--module %q: want a module path such as example.com/traces/%s", s.Module, s.Name))
	}
	if s.Dir == "" {
		s.Dir = s.Name
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// file is a file of the new module. name is its path in the folder.
type file struct {
	name string
	text []byte
}

// render returns the files of the new module, sorted by name.
func (s scaffold) render(b base) ([]file, error) {
	var files []file
	for _, dir := range []string{"templates", "templates/" + string(s.Kind)} {
		entries, err := templates.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				continue
			}
			f, err := s.fill(path.Join(dir, entry.Name()), b)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	goMod, err := b.goMod(s.Module, importsOf(files))
	if err != nil {
		return nil, err
	}
	files = append(files, file{"go.mod", goMod})
	if b.replace != "" {
		files = append(files, file{"go.sum", b.goSum})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// fill returns the file that a template makes.
func (s scaffold) fill(name string, b base) (file, error) {
	t, err := template.New(path.Base(name)).Delims("[[", "]]").ParseFS(templates, name)
	if err != nil {
		return file{}, err
	}
	var text bytes.Buffer
	data := struct {
		scaffold
		Clone string // path of the clone to build against, or empty
	}{s, b.replace}
	if err := t.Execute(&text, data); err != nil {
		return file{}, err
	}
	target := strings.TrimSuffix(path.Base(name), ".tmpl")
	if target == "gitignore" { // embed ignores names that begin with a dot
		target = ".gitignore"
	}
	return file{target, text.Bytes()}, nil
}

// importLine matches the import of one package in Go code.
var importLine = regexp.MustCompile(`(?m)^(?:import)?\s+(?:\w+ )?"([^"]+)"$`)

// importsOf returns the packages that the Go files import.
func importsOf(files []file) []string {
	var all []string
	for _, f := range files {
		if !strings.HasSuffix(f.name, ".go") {
			continue
		}
		for _, match := range importLine.FindAllSubmatch(f.text, -1) {
			all = append(all, string(match[1]))
		}
	}
	return all
}

// create creates the folder dir and writes the files into it. If one of the files exists, it
// writes no file.
func create(dir string, files []file) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil { // writeNew reports other errors
			there = append(there, filepath.Join(dir, f.name))
		}
	}
	if len(there) > 0 {
		return usagef("%s: there already, and nothing is overwritten; choose another folder with --dir", strings.Join(there, ", "))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return usageError{err}
	}
	for i, f := range files {
		if err := writeNew(filepath.Join(dir, f.name), f.text); err != nil {
			for _, written := range files[:i] {
				err = errors.Join(err, os.Remove(filepath.Join(dir, written.name)))
			}
			return usageError{err}
		}
	}
	return nil
}

// writeNew writes a file that must not exist.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
