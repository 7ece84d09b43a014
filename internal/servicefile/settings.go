package servicefile

import (
	"fmt"
	"slices"
	"strings"
)

// Setting is what holds of one key, and why.
type Setting struct {
	// Key is its path; Variable goes over it, if it has one.
	Key, Variable string
	// Value is what holds, as the variable has it; empty for nothing.
	Value string
	// From is "default", "environment VARIABLE", or the file with a line.
	From string
}

// Settings gives each key of the table with what holds of it, in the order of
// the table, those of each plugin of the file where the table has NAME. The value of a document is how long it is: it may hold secrets.
func (f *File) Settings() []Setting {
	var list []Setting
	for _, k := range keys {
		if !strings.Contains(k.Path, anyName) {
			list = append(list, f.setting(k))
			continue
		}
		for _, p := range f.plugins {
			path := strings.Replace(k.Path, anyName, p.name, 1)
			switch i := f.find(path); {
			case k.Path == pathDocument && p.config != nil:
				list = append(list, Setting{path, "", fmt.Sprintf("<%d bytes>", len(encode(p.config))), f.place(p.config.Line)})
			case i >= 0 && names(f.env(k.Variable), k.join, p.name):
				list = append(list, Setting{path, k.Variable, f.env(k.Variable), "environment " + k.Variable})
			case i >= 0:
				list = append(list, Setting{path, k.Variable, f.values[i].text, f.place(f.values[i].at.Line)})
			}
		}
	}
	return list
}

func (f *File) setting(k Key) Setting {
	is := Setting{Key: k.Path, Variable: k.Variable, Value: k.Default, From: "default"}
	at := slices.IndexFunc(f.values, func(v value) bool { return v.key.Path == k.Path })
	if k.Variable == "" { // the switch
		if at >= 0 {
			is.Value, is.From = f.values[at].text, f.place(f.values[at].at.Line)
		}
		return is
	}
	if own := strings.TrimSpace(f.env(k.Variable)); own != "" {
		is.Value, is.From = own, "environment "+k.Variable
	} else if text, from := f.of(k.Variable); from != nil {
		is.Value, is.From = text, f.place(from.at.Line)
	} else if k.over != nil && k.over(f.env) != "" {
		is.Variable = k.over(f.env)
		is.Value, is.From = f.env(is.Variable), "environment "+is.Variable
	}
	return is
}

func (f *File) place(line int) string { return fmt.Sprintf("%s:%d", f.Name, line) }
