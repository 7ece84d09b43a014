package pluginsdk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MainByName is [Main] for an executable that contains several plugins. It runs the
// plugin with the Spec.Name that is the last part of the command's path. So each plugin
// is started by a link to the executable with the plugin's name. If no plugin has the
// name of the command, the arguments "install FOLDER" copy the executable to a folder and
// make the links. MainByName does not return.
func MainByName(specs ...Spec) {
	for _, spec := range specs {
		if len(os.Args) > 0 && filepath.Base(os.Args[0]) == spec.Name {
			Main(spec)
		}
	}
	err := errors.New(aboutNames(specs))
	if len(os.Args) == 3 && os.Args[1] == "install" {
		err = install(os.Args[2], specs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(exitCode(err))
}

// aboutNames returns the usage text of an executable with several plugins.
func aboutNames(specs []Spec) string {
	var names []string
	for _, spec := range specs {
		names = append(names, spec.Name)
	}
	return fmt.Sprintf(`This executable is these plugins of servetrace: %s.
A link with the name of a plugin runs it. Make the links in a folder:

    %s install FOLDER`, strings.Join(names, ", "), filepath.Base(os.Args[0]))
}

// install copies this executable to a folder, and makes a link to the copy for each
// plugin. The copy's name begins with a dot, because hosts do not list such files as
// plugins. install replaces the files of an earlier installation.
func install(folder string, specs []Spec) error {
	exe := executable()
	src, err := os.Open(exe)
	if err != nil {
		return fmt.Errorf("install the plugins: %w", err)
	}
	defer func() { _ = src.Close() }() // the file was only read, so Close cannot lose data
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("install the plugins: %w", err)
	}
	name := "." + strings.TrimPrefix(filepath.Base(exe), ".")
	err = replace(filepath.Join(folder, name), func(path string) error { return copyTo(path, src) })
	for _, spec := range specs {
		if err == nil {
			err = replace(filepath.Join(folder, spec.Name), func(path string) error { return os.Symlink(name, path) })
		}
	}
	if err != nil {
		return fmt.Errorf("install the plugins: %w", err)
	}
	return nil
}

// replace makes a new file beside path, and renames it to path. So a plugin that runs
// from the old file is not disturbed.
func replace(path string, create func(path string) error) error {
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// copyTo copies src to a new file with mode 0755, whatever the umask is.
func copyTo(path string, src io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, src)
	return errors.Join(err, f.Chmod(0o755), f.Close())
}
