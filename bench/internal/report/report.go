package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// The files of a report.
const (
	JSONFile     = "results.json"
	MarkdownFile = "report.md"
)

// Write makes the folder and puts both files of the report into it.
func Write(dir string, r *suite.Results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var text strings.Builder
	Markdown(&text, r)
	files := map[string]string{JSONFile: string(data) + "\n", MarkdownFile: text.String()}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
