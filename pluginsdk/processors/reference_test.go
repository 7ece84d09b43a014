package processors

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// referencePage is the reference of the processors for operators.
const referencePage = "../../docs/reference/processors.md"

// TestReference compares the page's tables with the configuration: each field of each
// kind has a row with its type, and each row has a field.
func TestReference(t *testing.T) {
	sections := referenceSections(t)
	for kind, config := range yamlFields(reflect.TypeFor[entry]()) {
		t.Run(kind, func(t *testing.T) {
			section, ok := sections[kind]
			if !ok {
				t.Fatalf("%s has no section %q", referencePage, "## "+kind)
			}
			fields := map[string]reflect.Type{}
			allFields(config, "", fields)
			rows := map[string]string{}
			for _, row := range referenceRow.FindAllStringSubmatch(section, -1) {
				if _, twice := rows[row[1]]; twice {
					t.Errorf("the page has %s twice", row[1])
				}
				rows[row[1]] = row[2]
			}
			for field, typ := range fields {
				word, ok := rows[field]
				if !ok {
					t.Errorf("the page has no row for %s", field)
				} else if want := typeWords(typ); !slices.Contains(want, word) {
					t.Errorf("the page says %s is %q, want one of %q", field, word, want)
				}
			}
			for field := range rows {
				if fields[field] == nil {
					t.Errorf("the page has a row for %s, which is no field", field)
				}
			}
		})
	}
}

// TestReferenceWords compares the words that fields take, and the built-in
// rules, with the page.
func TestReferenceWords(t *testing.T) {
	sections := referenceSections(t)
	rules := []string{ruleKeys}
	for _, p := range patterns {
		rules = append(rules, p.rule)
	}
	for _, c := range []struct {
		kind  string
		words []string
	}{
		{kindFilter, slices.Collect(maps.Keys(kinds))},
		{kindFilter, slices.Collect(maps.Keys(statuses))},
		{kindAttributes, slices.Collect(maps.Keys(operations))},
		{kindAttributes, slices.Collect(maps.Keys(placeNames))},
		{kindRedact, rules},
		{kindRedact, BlockedKeys()},
	} {
		for _, word := range c.words {
			if !strings.Contains(sections[c.kind], "`"+word+"`") {
				t.Errorf("%s: section %s does not name `%s`", referencePage, c.kind, word)
			}
		}
	}
}

// referenceRow is a row of a table of fields, with at least four columns. Tables of words
// have fewer.
var referenceRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|\n]+) \\|[^|\n]+\\|.+\\|$")

// referenceSections are the parts of the page by their headings.
func referenceSections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		sections[heading] = body
	}
	return sections
}

// yamlFields are a struct's fields by their tags.
func yamlFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		typ := t.Field(i).Type
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		fields[tag] = typ
	}
	return fields
}

// allFields adds the fields of a config to all, with fields of structs in it as
// "drop[].name" and "keep.errors".
func allFields(config reflect.Type, prefix string, all map[string]reflect.Type) {
	for tag, typ := range yamlFields(config) {
		all[prefix+tag] = typ
		switch {
		case typ.Kind() == reflect.Struct:
			allFields(typ, prefix+tag+".", all)
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
			allFields(typ.Elem(), prefix+tag+"[].", all)
		}
	}
}

// typeWords returns the allowed names of a type on the page.
func typeWords(t reflect.Type) []string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return []string{"duration"}
	case t == reflect.TypeFor[[]string]():
		return []string{"globs", "regexps", "words"}
	case t.Kind() == reflect.String:
		return []string{"text", "glob", "word"}
	case t.Kind() == reflect.Bool:
		return []string{"true or false"}
	case t.Kind() == reflect.Int:
		return []string{"whole number"}
	case t.Kind() == reflect.Float64:
		return []string{"number"}
	case t.Kind() == reflect.Slice:
		return []string{"list"}
	case t.Kind() == reflect.Map, t.Kind() == reflect.Struct:
		return []string{"mapping"}
	default:
		return []string{"value"}
	}
}
