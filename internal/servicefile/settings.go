package servicefile

import (
	"fmt"
	"strings"
)

// FromDefault is the From of a setting that neither the environment nor the file has.
const FromDefault = "default"

// Setting is what holds of one key, and why.
type Setting struct {
	// Key is its path; Variable goes over it, if it has one.
	Key, Variable string
	// Value is what holds, as the variable has it; empty for nothing.
	Value string
	// From is FromDefault, "environment VARIABLE", or the file with a line.
	From string
}

// Settings gives each key of the table with what holds of it, in the order of
// the table, those of each plugin of the file where the table has NAME, and what
// the file says of applications. The value of a document is how long it is: it
// may hold secrets.
func (f *File) Settings() []Setting {
	var list []Setting
	for _, k := range keys {
		if !strings.Contains(k.Path, anyName) {
			list = append(list, f.setting(k))
			continue
		}
		for _, p := range f.plugins {
			path := strings.Replace(k.Path, anyName, p.name, 1)
			i := f.find(path)
			is := Setting{Key: path, Variable: k.Variable}
			switch {
			case i < 0 && (k.Path != pathDocument || p.config == nil):
				continue
			case names(f.env(k.Variable), k.join, p.name):
				is.Value, is.From = f.env(k.Variable), "environment "+k.Variable
			case i < 0:
				is.Value, is.From = fmt.Sprintf("<%d bytes>", len(encode(p.config))), f.place(p.config.Line)
			default:
				is.Value, is.From = f.values[i].text, f.place(f.values[i].at.Line)
			}
			list = append(list, is)
		}
	}
	for _, v := range f.said {
		is := Setting{Key: v.path, Value: v.text, From: f.place(v.at.Line)}
		if strings.HasSuffix(v.path, ".user_config") {
			is.Value = fmt.Sprintf("<%d bytes>", len(encode(v.at)))
		}
		list = append(list, is)
	}
	return list
}

func (f *File) setting(k Key) Setting {
	is := Setting{Key: k.Path, Variable: k.Variable, Value: k.Default, From: FromDefault}
	if k.atMost != "" {
		is.Value += ", at most " + k.atMost
	}
	at := f.find(k.Path)
	if k.Variable == "" { // the switch
		if by := f.disabledBy(); by != "" {
			return Setting{Key: k.Path, Variable: by, Value: "false", From: "environment " + by}
		}
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
		if arg := f.env(envSamplerArg); arg != "" && is.Variable == envSampler && strings.HasSuffix(strings.ToLower(is.Value), "ratio") {
			is.Value += ", " + envSamplerArg + "=" + arg
		}
	}
	return is
}

// disabledBy returns OpenTelemetry's variable that disables tracing, empty for none.
func (f *File) disabledBy() string {
	switch {
	case strings.EqualFold(strings.TrimSpace(f.env(envSDKDisabled)), "true"):
		return envSDKDisabled
	case strings.EqualFold(strings.TrimSpace(f.env(envTracesExporter)), "none"):
		return envTracesExporter
	}
	return ""
}

func (f *File) place(line int) string { return fmt.Sprintf("%s:%d", f.Name, line) }
