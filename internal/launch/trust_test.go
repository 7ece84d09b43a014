package launch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// digestOf is the pin of a file.
func digestOf(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	return hash.Sum(nil)
}

// plot is a folder with a folder "bin" with an executable "plugin" in it, all of
// this user and closed to others.
func plot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(
		os.Mkdir(bin, 0o700),
		os.WriteFile(filepath.Join(bin, "plugin"), []byte("#!/bin/sh\n"), 0o700),
		os.Chmod(dir, 0o700), os.Chmod(bin, 0o700),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

func chmod(path string, mode os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Permissions that let other users change the executable. The file modes are real. The
// user is the present one, except if the case is about a group, which is then not its
// own.
func TestWhoCanChangeAPlugin(t *testing.T) {
	const orElsePin = ", or pin the plugin's bytes (@sha256:…), or set SERVE_TRACING_PLUGIN_WRITABLE=allow"
	us := self()
	ids := fmt.Sprintf("user %d, group %d", us.uid, us.gid)
	stranger := user{us.uid, us.gid + 1} // with another group, so that ours is not its own
	all := func(then ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, f := range then {
				f(t, dir)
			}
		}
	}
	link := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mkdir := func(name string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			chmod(name, mode)(t, dir)
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(*testing.T, string)
		path    string // "bin/plugin" if empty
		as      user
		want    string // empty: trusted
	}{
		{"closed", all(), "", us, ""},
		{"readable to all", all(chmod("bin/plugin", 0o755), chmod("bin", 0o755)), "", us, ""},
		{"file that all can write", chmod("bin/plugin", 0o757), "", us,
			"others can change the file DIR/bin/plugin (mode 0757, " + ids + "), and so the program that runs as user UID; run: chmod o-w DIR/bin/plugin" + orElsePin},
		{"file that the group can write", chmod("bin/plugin", 0o770), "", stranger,
			"others can change the file DIR/bin/plugin (mode 0770, " + ids + "), and so the program that runs as user UID; run: chmod g-w DIR/bin/plugin" + orElsePin},
		{"file that group and all can write", chmod("bin/plugin", 0o777), "", stranger,
			"others can change the file DIR/bin/plugin (mode 0777, " + ids + "), and so the program that runs as user UID; run: chmod go-w DIR/bin/plugin" + orElsePin},
		{"the user's private group", all(chmod("bin/plugin", 0o770), chmod("bin", 0o770)), "", user{us.uid, us.uid}, ""},
		{"folder that all can write", chmod("bin", 0o707), "", us,
			"others can change the folder DIR/bin (mode 0707, " + ids + "), and so the program that runs as user UID; run: chmod o-w DIR/bin" + orElsePin},
		{"folder above that the group can write", chmod(".", 0o770), "", stranger,
			"others can change the folder DIR (mode 0770, " + ids + "), and so the program that runs as user UID; run: chmod g-w DIR" + orElsePin},
		{"folder like /tmp", chmod("bin", 0o777|os.ModeSticky), "", us, ""},
		{"link in a closed folder", link("plugin", "bin/plugin"), "plugin", us, ""},
		{"link in a folder that all can write", all(mkdir("open", 0o707), link("open/plugin", "../bin/plugin")), "open/plugin", us,
			"others can change the folder DIR/open (mode 0707, " + ids + "), and so the program that runs as user UID; run: chmod o-w DIR/open" + orElsePin},
		{"link to a folder, through an open one", all(mkdir("open", 0o707), link("open/bin", "../bin"), link("short", "open/bin")), "short/plugin", us,
			"others can change the folder DIR/open (mode 0707, " + ids + "), and so the program that runs as user UID; run: chmod o-w DIR/open" + orElsePin},
		{"link in a folder like /tmp", all(mkdir("open", 0o777|os.ModeSticky), link("open/plugin", "../bin/plugin")), "open/plugin", us, ""},
		{"name that a shell would take apart", all(mkdir("my bin", 0o707), link("my bin/plugin", "../bin/plugin")), "my bin/plugin", us,
			"others can change the folder DIR/my bin (mode 0707, " + ids + "), and so the program that runs as user UID; run: chmod o-w 'DIR/my bin'" + orElsePin},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := plot(t)
			test.prepare(t, dir)
			path := filepath.Join(dir, "bin/plugin")
			if test.path != "" {
				path = filepath.Join(dir, test.path)
			}
			steps, err := walk(path)
			if err != nil {
				t.Fatal(err)
			}
			// The folders above belong to the machine of the test.
			above := strings.Count(dir, "/")
			got := ""
			if err := onlyOurs(steps[above:], test.as, orElse); err != nil {
				got = strings.NewReplacer(dir, "DIR", fmt.Sprintf("as user %d;", us.uid), "as user UID;").Replace(err.Error())
			}
			if got != test.want {
				t.Errorf("error %q\nwant  %q", got, test.want)
			}
		})
	}
}

// A file of another user is writable to that user.
func TestPluginOfAnotherUserIsUntrusted(t *testing.T) {
	us := self()
	for _, what := range []string{"bin/plugin", "bin", "."} {
		t.Run(what, func(t *testing.T) {
			dir := plot(t)
			path := filepath.Join(dir, what)
			other, as := us.uid, user{us.uid + 1, us.gid + 1}
			if us.uid == 0 { // which everybody trusts
				other, as = 65534, us
				if err := os.Chown(path, int(other), -1); err != nil {
					t.Skipf("give the file away: %v", err)
				}
			}
			steps, err := walk(filepath.Join(dir, "bin/plugin"))
			if err != nil {
				t.Fatal(err)
			}
			err = onlyOurs(steps[strings.Count(dir, "/"):], as, orElse)
			want := fmt.Sprintf(" belongs to user %d, who can therefore replace the program that runs as user %d; run: chown -h %d ", other, as.uid, as.uid)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want one with %q", err, want)
			}
		})
	}
}

// A link of another user in a folder like /tmp leads where that user likes.
func TestLinkOfAnotherUserIsUntrusted(t *testing.T) {
	us := self()
	if us.uid != 0 {
		t.Skip("only root can give a link away")
	}
	dir := plot(t)
	open := filepath.Join(dir, "open")
	link := filepath.Join(open, "plugin")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777|os.ModeSticky),
		os.Symlink("../bin/plugin", link), os.Lchown(link, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	err := Check(link, Trust{})
	want := "start PATH: the link PATH belongs to user 65534, who can therefore replace the program that runs as user 0; run: chown -h 0 PATH, "
	if got := normal(fmt.Sprint(err), link); !strings.HasPrefix(got, want) {
		t.Errorf("Check = %s\nwant %s", got, want)
	}
}

func TestTrustOfStart(t *testing.T) {
	dir := plot(t)
	path := filepath.Join(dir, "bin/plugin")
	chmod("bin/plugin", 0o757)(t, dir)
	cmd, _ := command(t, "record")
	cmd.Path = path

	_, err := Start(t.Context(), cmd)
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonUntrusted || !e.Untrusted() {
		t.Errorf("Start = %v, want it untrusted", err)
	}
	if checked := Check(path, Trust{}); fmt.Sprint(checked) != fmt.Sprint(err) {
		t.Errorf("Check = %v, want what Start said", checked)
	}
	for _, trust := range []Trust{{AllowWritable: true}, {Digest: digestOf(t, path)}} {
		if err := Check(path, trust); err != nil {
			t.Errorf("Check with %+v: %v", trust, err)
		}
		cmd.AllowWritable, cmd.Digest = trust.AllowWritable, trust.Digest
		if _, err := Start(t.Context(), cmd); !errors.As(err, &e) || e.Reason != ReasonNotPlugin {
			t.Errorf("Start with %+v: %v, want it to have run", trust, err)
		}
	}
	// The command that the error names mends it.
	chmod("bin/plugin", 0o755)(t, dir)
	if err := Check(path, Trust{}); err != nil {
		t.Errorf("Check after chmod o-w: %v", err)
	}
}

// Folders of modules are checked like the executable, also with a pin.
func TestTrustOfImports(t *testing.T) {
	dir := plot(t)
	path, modules := filepath.Join(dir, "bin/plugin"), filepath.Join(dir, "modules")
	if err := os.Mkdir(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	orElse := ", or use another folder, or set SERVE_TRACING_PLUGIN_WRITABLE=allow"
	for _, test := range []struct {
		mode os.FileMode
		want string
	}{
		{0o755, "<nil>"},
		{0o757, fmt.Sprintf("start PATH: it loads modules from DIR: others can change the folder DIR (mode 0757, user %d, group %d), and so the program that runs as user %[1]d; run: chmod o-w DIR", os.Getuid(), os.Getgid()) + orElse},
		{0o777 | os.ModeSticky, "start PATH: it loads modules from DIR: every user can put files into the folder DIR (mode 1777); run: chmod o-w DIR" + orElse},
	} {
		if err := os.Chmod(modules, test.mode); err != nil {
			t.Fatal(err)
		}
		for _, pin := range [][]byte{nil, digestOf(t, path)} {
			err := Check(path, Trust{Digest: pin, Imports: []string{"/nowhere", modules}})
			if got := strings.NewReplacer(path, "PATH", modules, "DIR").Replace(fmt.Sprint(err)); got != test.want {
				t.Errorf("mode %v, pin %x: %s\nwant %s", test.mode, pin, got, test.want)
			}
		}
		if err := Check(path, Trust{AllowWritable: true, Imports: []string{modules}}); err != nil {
			t.Errorf("mode %v, allowed: %v", test.mode, err)
		}
	}
}

func TestIdentify(t *testing.T) {
	dir := plot(t)
	path := filepath.Join(dir, "bin/plugin")
	identify := func() Identity {
		t.Helper()
		i, err := Identify(path)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	last := identify()
	if again := identify(); again != last {
		t.Errorf("identity %+v, then %+v of the same file", last, again)
	}
	other := filepath.Join(dir, "bin/other")
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"written to", func() error { return os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0) }},
		{"chmod", func() error { return os.Chmod(path, 0o755) }},
		{"replaced by a copy", func() error {
			return errors.Join(os.WriteFile(other, []byte("#!/bin/sh\nexit 1\n"), 0o755), os.Rename(other, path))
		}},
		{"chmod of its folder", func() error { return os.Chmod(filepath.Dir(path), 0o755) }},
		{"chmod of the folder above", func() error { return os.Chmod(dir, 0o755) }},
		{"replaced by a link", func() error { return errors.Join(os.Rename(path, other), os.Symlink(other, path)) }},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		now := identify()
		if now == last {
			t.Errorf("%s: the identity is the same", change.name)
		}
		last = now
	}
	// Another file in the folder changes nothing of this one.
	if err := os.WriteFile(filepath.Join(dir, "bin/third"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := identify(); now != last {
		t.Errorf("identity %+v, then %+v after another file came", last, now)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if i, err := Identify(path); err == nil {
		t.Errorf("identity %+v of a link to nowhere", i)
	}
}

// Links in a circle end as they do for the kernel.
func TestCircleOfLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.Symlink("plugin", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Identify(path); err == nil || !strings.HasSuffix(err.Error(), "too many levels of symbolic links") {
		t.Errorf("Identify = %v", err)
	}
}

// The kernel does not follow the links in /proc by their text: the examined file must be
// the executed file.
func TestPathThroughAnOpenFile(t *testing.T) {
	path := filepath.Join(plot(t), "bin/plugin")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(os.Remove(path), os.WriteFile(path+" (deleted)", []byte("#!/bin/sh\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(link); err != nil {
		t.Skipf("no /proc: %v", err)
	}
	err = Check(link, Trust{})
	want := "start PATH: check the folders above the file: they lead to another file: it was replaced just now, or the path is one of /proc; name the file itself"
	if got := normal(fmt.Sprint(err), link); got != want {
		t.Errorf("Check = %s\nwant %s", got, want)
	}
}

// A path that is not absolute begins where the process is.
func TestRelativePath(t *testing.T) {
	dir := plot(t)
	t.Chdir(filepath.Join(dir, "bin"))
	chmod("bin", 0o707)(t, dir)
	for _, path := range []string{"./plugin", "plugin", "../bin/./plugin"} {
		err := Check(path, Trust{})
		if want := "others can change the folder " + filepath.Join(dir, "bin"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%q) = %v, want %s", path, err, want)
		}
	}
}
