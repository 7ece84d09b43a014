package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/progress"
)

const pluginInstallLong = `Put a plugin into a plugin folder, and print its pin, as "servetrace plugin pin" does.
It is not started. SOURCE is one of:

  FILE                 an executable, or a tar archive that has it; gzip and zstd are known
  oci:PATH[:TAG]       an image or artifact for this platform, in a folder or a tar archive
                       with an OCI layout
  https://HOST/FILE    the same as FILE; http:// is allowed, because the digest is verified

SOURCE may end in @sha256: and the digest of the file or of the OCI manifest, and an
address must. All parts of an OCI layout are verified.

NAME is also the name of the file in an archive or image. Its default is the name of
SOURCE, or the title of the only file in an artifact.

The exit code is 1 if the digest is another one, or the file cannot run here.`

const pluginInstallExample = `  servetrace plugin install https://plugins.example.com/names@sha256:... --env-file /etc/servetrace/relay.env`

type installFlags struct {
	name, dir, envFile string
	processor, force   bool
}

func newPluginInstall(s settings) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "install SOURCE",
		Short:   "Install a plugin from a file, an OCI layout or an address, and print its pin",
		Long:    pluginInstallLong,
		Example: pluginInstallExample,
		Args:    oneArg("SOURCE"),
		RunE:    func(cmd *cobra.Command, list []string) error { return f.run(cmd, s, list[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "`NAME` of the plugin's file")
	flags.StringVar(&f.dir, "dir", "", "`folder` (default: the first of SERVE_TRACING_PLUGIN_DIR, or plugins beside the command)")
	flags.StringVar(&f.envFile, "env-file", "", "`FILE` of variables, as systemd reads it, to write the pin to")
	flags.BoolVar(&f.processor, "processor", false, "write the pin to "+host.EnvProcessors)
	flags.BoolVar(&f.force, "force", false, "replace a file with other bytes, in one step")
	return cmd
}

// mostInstalled is the largest size of a plugin, and of its archive, in bytes.
const mostInstalled = 512 << 20

func (f installFlags) run(cmd *cobra.Command, s settings, text string) error {
	from, err := parseSource(text)
	if err != nil {
		return err
	}
	if from.name == "" || f.name != "" {
		from.name = f.name
	}
	if from.name != "" && (!entryName.MatchString(from.name) || filepath.Base(from.name) != from.name) {
		return usagef("--name %q: want letters, digits, dots, dashes and underscores", from.name)
	}
	report := progress.Start(cmd.ErrOrStderr(), "plugin install", 0)
	name, data, err := from.read(cmd.Context(), report)
	report.End()
	if err != nil {
		return err
	}
	dir, err := f.folder(s)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, name)
	if err := f.place(cmd.Context(), s, file, data); err != nil {
		return err
	}
	digest := sha256.Sum256(data)
	item := pluginItem{where: escape.Replace(file), pin: "sha256:" + hex.EncodeToString(digest[:])}
	if f.envFile != "" {
		variable := host.EnvPlugins
		if f.processor {
			variable = host.EnvProcessors
		}
		if err := writePin(f.envFile, variable, item); err != nil {
			return usagef("--env-file: %w", err)
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), item)
	return err
}

// folder returns the plugin folder to install to.
func (f installFlags) folder(s settings) (string, error) {
	if f.dir != "" {
		return filepath.Abs(f.dir)
	}
	if dirs := filepath.SplitList(s.getenv(host.EnvPluginDir)); len(dirs) > 0 && dirs[0] != "" {
		return filepath.Abs(dirs[0])
	}
	own, err := os.Executable()
	return filepath.Join(filepath.Dir(own), "plugins"), err
}

// place checks that a host on this machine could run the plugin data, and writes it to the
// file. A rename replaces the file, so that a service never sees half of it.
func (f installFlags) place(ctx context.Context, s settings, file string, data []byte) error {
	present, err := os.ReadFile(file)
	switch {
	case err == nil && bytes.Equal(present, data):
		return nil
	case err == nil && !f.force:
		return usagef("%s is there already, with other bytes; --force replaces it", file)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	aside, err := os.MkdirTemp(filepath.Dir(file), ".install-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(aside) }() // place has moved the plugin out of this folder, unless it failed
	partial := filepath.Join(aside, filepath.Base(file))
	if err := errors.Join(os.WriteFile(partial, data, 0o755), os.Chmod(partial, 0o755)); err != nil {
		return err
	}
	cfg, err := s.one(ctx, partial, "")
	if err != nil {
		return err
	}
	cfg.AllowWritable = true // a service checks the permissions of the folder itself, before it starts the plugin
	if is := host.Inspect(ctx, cfg, false)[0]; is.Err != nil {
		return fmt.Errorf("the file cannot run here, and is not installed: %w", is.Err)
	}
	if why := launch.Foreign(partial); why != "" {
		return fmt.Errorf("%s is not installed: %s", file, why)
	}
	return os.Rename(partial, file)
}

// source is the argument SOURCE: the place of the plugin to install.
type source struct {
	where  string // a path or an address
	oci    bool   // where is the path of an OCI layout
	tag    string // tag of the image in the OCI layout; empty if SOURCE has none
	digest string // digest to verify, 64 hexadecimal digits; empty if SOURCE has none
	name   string // name of the plugin; empty if the OCI layout decides
}

// pinned matches a text with a digest at its end.
var pinned = regexp.MustCompile(`^(.*)@sha256:([0-9a-f]{64})$`)

// parseSource parses the argument SOURCE.
func parseSource(text string) (source, error) {
	s := source{where: text}
	if m := pinned.FindStringSubmatch(text); m != nil {
		s.where, s.digest = m[1], m[2]
	} else if strings.Contains(text, "@sha256:") {
		return s, usagef("SOURCE %q: want 64 hexadecimal digits after @sha256:", text)
	}
	rest, oci := strings.CutPrefix(s.where, "oci:")
	address := strings.HasPrefix(s.where, "https://") || strings.HasPrefix(s.where, "http://")
	switch {
	case oci:
		s.oci, s.where = true, rest
		if dir, tag, ok := strings.Cut(rest, ":"); ok {
			s.where, s.tag = dir, tag
		}
		return s, nil
	case address && s.digest == "":
		return s, usagef("SOURCE %s: the digest is missing; add @sha256: and the digest that the publisher states", text)
	case address:
		u, err := url.Parse(s.where)
		if err != nil {
			return s, usagef("SOURCE: %w", err)
		}
		s.name = path.Base(u.Path)
	case strings.Contains(s.where, "://"):
		return s, usagef("SOURCE %s: want a file, oci: and a path, or an address with https:// or http://", text)
	default:
		s.name = filepath.Base(s.where)
	}
	for _, ending := range []string{".gz", ".zst", ".tgz", ".tar"} {
		s.name = strings.TrimSuffix(s.name, ending)
	}
	return s, nil
}

// read returns the plugin's name and its bytes. It returns an error if SOURCE has a digest
// and the bytes have another one.
func (s source) read(ctx context.Context, report *progress.Report) (name string, data []byte, err error) {
	switch {
	case s.oci:
		layout := ociLayout{s.where}
		return layout.plugin(s.tag, s.digest, s.name)
	case strings.Contains(s.where, "://"):
		data, err = fetch(ctx, s.where, report)
	default:
		data, err = readFile(ctx, "SOURCE", s.where, nil, mostInstalled)
	}
	if err != nil {
		return "", nil, err
	}
	if err := verify(s.where, data, s.digest); s.digest != "" && err != nil {
		return "", nil, err
	}
	data, err = fromArchive(data, s.name)
	return s.name, data, err
}

// verify returns an error if data does not have the digest.
func verify(where string, data []byte, digest string) error {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return fmt.Errorf("%s has the digest sha256:%x, and not sha256:%s: nothing is installed; get the file again, or ask its publisher", where, sum, digest)
	}
	return nil
}

// fetch returns the content at an address of HTTP, and reports its progress.
func fetch(ctx context.Context, at string, report *progress.Report) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, usagef("SOURCE: %w", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("download: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read only
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("download %s: status %s", at, resp.Status)
	}
	data, err := readBounded(io.TeeReader(resp.Body, &download{report: report, of: resp.ContentLength}), mostInstalled)
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", at, err)
	}
	return data, nil
}

// download is a writer that counts bytes and reports their number in MiB.
type download struct {
	report *progress.Report
	got    int64 // bytes so far
	of     int64 // size of the content in bytes; not positive if it is not known
}

// Write implements io.Writer.
func (d *download) Write(p []byte) (int, error) {
	d.got += int64(len(p))
	d.report.At("MiB", int(d.got>>20), int(max(0, d.of>>20)))
	return len(p), nil
}

// writePin writes an item to the list of plugins in a variable. file has lines of the form
// NAME=VALUE, and the last line of the variable counts. The other lines stay. The file keeps
// its mode, owner and group, or writePin returns an error.
func writePin(file, variable string, item pluginItem) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // replace the target of a link, and not the link
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	value := ""
	at := len(lines)
	for i, line := range lines {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), variable+"="); ok {
			at, value = i, strings.Trim(v, `"'`)
		}
	}
	lines = slices.Replace(lines, at, min(at+1, len(lines)), variable+"="+withItem(value, item))
	partial, err := os.CreateTemp(filepath.Dir(file), ".env-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(partial.Name()) }() // an error means that the file was renamed
	_, err = partial.WriteString(strings.Join(lines, "\n") + "\n")
	if err := errors.Join(err, copyOwner(partial, file), partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), file)
}

// copyOwner gives f the mode, owner and group of the file at path, if that file exists.
func copyOwner(f *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return fmt.Errorf("keep the owner of %s: %w; run the command as root, or as the owner of the file", path, err)
		}
	}
	return f.Chmod(info.Mode().Perm())
}

// withItem returns the list of plugins with the item. If the list has the item's path
// already, only the pin there changes.
func withItem(list string, item pluginItem) string {
	items := parseItems(list)
	found := false
	for i := range items {
		if items[i].where == item.where {
			items[i].pin, found = item.pin, true
		}
	}
	if !found {
		items = append(items, item)
	}
	return joinItems(items)
}

// thisPlatform is the platform that a plugin must be built for.
var thisPlatform = ociPlatform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
