package pluginlist

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// A function in Python that was written as an exporter for Ray Serve runs in a process of
// its own:
//
//	python3 -m servetrace.runner --path FOLDER MODULE:FUNCTION
//
// The module servetrace.runner (in the folder python of this repository) imports the
// function from FOLDER, and is a plugin for the host.

// pythonScheme is the beginning of an entry for a function in Python.
const pythonScheme = "python:"

// VarPythonPath names the variable with the folders in which Python finds modules. The
// host passes it to a function in Python, because the folders may contain its module or
// the package servetrace.
const VarPythonPath = "PYTHONPATH"

// defaultPython is the interpreter if SERVE_TRACING_PYTHON is not set.
const defaultPython = "python3"

// importPath matches a function in Python, as Ray Serve writes it: MODULE:FUNCTION, or
// MODULE.FUNCTION.
var importPath = regexp.MustCompile(`^(\w+(?:\.\w+)*)[:.](\w+)$`)

// functionEntry returns the entry for a function in Python. If the list gives no name,
// the name of the module is used.
func functionEntry(name string, named bool, where string) (Entry, error) {
	path := strings.TrimPrefix(where, pythonScheme)
	if strings.Contains(path, "@") {
		return Entry{}, fmt.Errorf("a function in Python has no pin (%s…); pin the interpreter: %s=PATH%s…", PinMark, EnvPython, PinMark)
	}
	parts := importPath.FindStringSubmatch(path)
	if parts == nil {
		return Entry{}, fmt.Errorf("%q is no function in Python; write %sMODULE:FUNCTION, such as %sexporter:default_tracing_exporter", path, pythonScheme, pythonScheme)
	}
	if !named {
		module := parts[1][strings.LastIndexByte(parts[1], '.')+1:]
		name = cmp.Or(strings.TrimLeft(module, "_"), "python")
	}
	return Entry{Name: name, Where: where, Function: parts[1] + ":" + parts[2], Named: named}.checked()
}

// interpreter returns the path of the interpreter. If SERVE_TRACING_PYTHON is not a path,
// it is the first file with this name in the folders of PATH.
func interpreter(s *Settings) (string, error) {
	where, _, _ := cutPin(s.Python) // Settings.entries has returned the error
	name := cmp.Or(unescape.Replace(where), defaultPython)
	if strings.Contains(name, "/") {
		return name, nil
	}
	folders := valueOf(s.Environ, "PATH")
	for _, dir := range filepath.SplitList(folders) {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(dir) && isExecutable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w %s in the folders of PATH (%s); install Python 3, or set %s to the path of an interpreter", errNoPython, name, folders, EnvPython)
}

// errNoPython is the error if no interpreter of Python is found.
var errNoPython = errors.New("there is no interpreter")

// PythonStart has the parts of a start that only a function in Python has. It is zero for
// other entries.
type PythonStart struct {
	// Args are the arguments of the executable.
	Args []string
	// Imports are the folders from which the process may load code. A user that can change
	// them can change the plugin.
	Imports []string
	// Environ are variables that the process gets in addition to the variables of every
	// plugin.
	Environ []string
}

// PythonStartOf returns the PythonStart of an entry.
func PythonStartOf(s *Settings, e Entry) PythonStart {
	if e.Function == "" {
		return PythonStart{}
	}
	r := PythonStart{Args: []string{"-m", "servetrace.runner"}}
	if s.PythonDir != "" {
		r.Args = append(r.Args, "--path", s.PythonDir)
		r.Imports = append(r.Imports, s.PythonDir)
	}
	r.Args = append(r.Args, e.Function)
	r.Imports = append(r.Imports, ".") // Python adds the working folder itself, because of -m
	if path := valueOf(s.Environ, VarPythonPath); path != "" && !s.withheld(e.Name, VarPythonPath) {
		r.Environ = []string{VarPythonPath + "=" + path}
		for _, dir := range filepath.SplitList(path) {
			r.Imports = append(r.Imports, cmp.Or(dir, "."))
		}
	}
	return r
}
