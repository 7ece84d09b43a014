package pluginlist

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
)

// FailWords are the words of SERVE_TRACING_PROCESSOR_FAIL, for errors.
const FailWords = "open or closed"

// ParseFail parses a word of SERVE_TRACING_PROCESSOR_FAIL.
func ParseFail(text string) (open bool, err error) {
	switch text {
	case "open":
		return true, nil
	case "closed":
		return false, nil
	}
	return false, errors.New("want " + FailWords)
}

// ParseExporterProcessors parses SERVE_TRACING_EXPORTER_PROCESSORS into a list for each
// exporter. It reports all faults at once.
func ParseExporterProcessors(text string) (map[string]string, error) {
	return parseItems(EnvExporterProcessors, text, func(item string, lists map[string]string) error {
		exporter, entry, ok := strings.Cut(item, ":")
		if !ok || !namePattern.MatchString(exporter) || entry == "" {
			return fmt.Errorf("must be EXPORTER:PROCESSOR, with the name of a plugin of %s", EnvPlugins)
		}
		if list, more := lists[exporter]; more {
			entry = list + "," + entry
		}
		lists[exporter] = entry
		return nil
	})
}

// parseProcessors parses a list of processors. exporter is the name of the exporter that
// they run for, or empty.
func parseProcessors(variable, text, exporter string) ([]Entry, error) {
	list, err := parseList(variable, text)
	errs := []error{err}
	for i := range list {
		e := &list[i]
		e.Processor, e.Exporter = true, exporter
		switch {
		case e.Function != "":
			errs = append(errs, fmt.Errorf("%s: entry %q: an exporter function cannot be a processor; name it in %s", variable, e.Where, EnvPlugins))
		case exporter != "" && e.isFolder():
			errs = append(errs, fmt.Errorf("%s: entry %q: the processors of one exporter cannot be a folder; name each of them", variable, e.Where))
		}
	}
	return list, errors.Join(errs...)
}

// validateFail returns an error for each name in SERVE_TRACING_PROCESSOR_FAIL that is
// not a processor of the list.
func validateFail(s *Settings, list []Entry) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	var names []string
	for _, e := range list {
		if e.Processor && !e.Folder {
			names = append(names, e.Name)
		}
	}
	for _, name := range sortedKeys(s.FailOpen) {
		at := indexOf(list, name)
		switch {
		case name == "" || slices.Contains(names, name):
		case at >= 0:
			errs = append(errs, fmt.Errorf("%s: plugin %q is an exporter; only a processor fails open or closed", EnvProcessorFail, name))
		case slices.ContainsFunc(list, func(e Entry) bool { return e.Processor && e.isFolder() }): // no error, because the folder may contain the plugin
		case len(names) == 0:
			errs = append(errs, fmt.Errorf("%s: there is no processor %q; list it in %s", EnvProcessorFail, name, EnvProcessors))
		default:
			text := "the processors are " + strings.Join(names, ", ")
			if near := spelling.Nearest(name, names); near != "" {
				text = "did you mean " + near + "?"
			}
			errs = append(errs, fmt.Errorf("%s: there is no processor %q; %s", EnvProcessorFail, name, text))
		}
	}
	return errors.Join(errs...)
}
