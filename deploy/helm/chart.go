// Package helm has the Helm chart of a service, and renders it without Helm. "servetrace
// render" prints the manifests of this chart.
//
// The templates use only the functions of text/template and four functions of Helm: base,
// quote, toYaml and nindent. A test in test/deploy compares the manifests with the output of
// Helm. Open servetrace/templates/deployments.yaml first.
package helm

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v4"
)

//go:embed servetrace
var chart embed.FS

// Release is an installation of the chart: its name and its namespace in Kubernetes.
type Release struct{ Name, Namespace string }

// Values holds values of the chart that differ from the defaults in servetrace/values.yaml. A
// mapping is merged with the default mapping. Any other value replaces the default.
type Values = map[string]any

// Render writes the manifests of a release, each after a line "---".
func Render(w io.Writer, release Release, values Values) error {
	text, err := chart.ReadFile("servetrace/values.yaml")
	if err != nil {
		return err
	}
	all := Values{}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("values of the chart: %w", err)
	}
	merge(all, values)
	templates, err := template.New("").Funcs(functions).Option("missingkey=error").ParseFS(chart, "servetrace/templates/*.yaml")
	if err != nil {
		return err
	}
	names, err := fs.Glob(chart, "servetrace/templates/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		var out strings.Builder
		err := templates.ExecuteTemplate(&out, path.Base(name), map[string]any{"Release": release, "Values": all})
		if err != nil {
			return err
		}
		manifests := strings.TrimPrefix(strings.TrimSpace(out.String()), "---\n")
		if manifests == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "---\n%s\n", manifests); err != nil {
			return err
		}
	}
	return nil
}

// merge sets the values of from in to, and keeps the other values of to.
func merge(to, from Values) {
	for key, value := range from {
		below, isMap := value.(Values)
		if old, ok := to[key].(Values); ok && isMap {
			changed := maps.Clone(old)
			merge(changed, below)
			value = changed
		}
		to[key] = value
	}
}

// functions are the functions of Helm that the templates use.
var functions = template.FuncMap{
	"quote": strconv.Quote,
	"base":  path.Base,
	"toYaml": func(value any) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	},
	"nindent": func(spaces int, text string) string {
		indent := "\n" + strings.Repeat(" ", spaces)
		return indent + strings.ReplaceAll(text, "\n", indent)
	},
}
