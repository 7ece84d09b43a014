package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// output is a destination of a plugin's spans.
type output interface {
	// holds reports whether a request's mark has been written.
	holds(mark string) bool
	// read returns how often each span was written.
	read() (map[string]int, error)
}

// spanFiles are text files. The first group of the pattern is a span id.
type spanFiles struct {
	glob string
	id   *regexp.Regexp
}

func consoleFiles(dir string) spanFiles {
	return spanFiles{filepath.Join(dir, "*_tracing.json"), regexp.MustCompile(`"span_id": "0x([0-9a-f]{16})"`)}
}

func lineFile(path string) spanFiles {
	return spanFiles{path, regexp.MustCompile(`"span_id":"([0-9a-f]{16})"`)}
}

// texts returns the contents of the files.
func (s spanFiles) texts() ([][]byte, error) {
	names, err := filepath.Glob(s.glob)
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

func (s spanFiles) holds(mark string) bool {
	texts, _ := s.texts() // an unreadable file does not hold the mark
	for _, text := range texts {
		if bytes.Contains(text, []byte(mark)) {
			return true
		}
	}
	return false
}

func (s spanFiles) read() (map[string]int, error) {
	texts, err := s.texts()
	seen := map[string]int{}
	for _, text := range texts {
		for _, match := range s.id.FindAllSubmatch(text, -1) {
			seen[string(match[1])]++
		}
	}
	return seen, err
}

// recorderFile is the recorder's output. It also contains the batch and the attempt of
// each span.
type recorderFile string

func (r recorderFile) lines() ([]batchLine, error) {
	text, err := os.ReadFile(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []batchLine
	for _, data := range bytes.Split(text, []byte{'\n'}) {
		var line batchLine
		// A kill may have cut a line. Its batch was not acknowledged.
		if len(data) > 0 && json.Unmarshal(data, &line) == nil {
			list = append(list, line)
		}
	}
	return list, err
}

func (r recorderFile) holds(mark string) bool {
	text, err := os.ReadFile(string(r))
	return err == nil && bytes.Contains(text, []byte(mark))
}

func (r recorderFile) read() (map[string]int, error) {
	lines, err := r.lines()
	seen := map[string]int{}
	for _, line := range lines {
		for _, id := range line.IDs {
			seen[id]++
		}
	}
	return seen, err
}

// repeats returns the errors in repeated spans. Only an unacknowledged batch may be
// repeated, unchanged and with another attempt number. A batch that its host gave up
// may be written after a later batch.
func (r recorderFile) repeats() []string {
	lines, _ := r.lines() // read has reported the error
	type attempt struct {
		batch string
		n     int
	}
	batchOf := map[string]string{}
	attempts := map[attempt]bool{}
	var wrong []string
	for _, line := range lines {
		if at := (attempt{line.Batch, line.Attempt}); attempts[at] {
			wrong = append(wrong, fmt.Sprintf("attempt %d of batch %s delivered twice", at.n, at.batch))
		} else {
			attempts[at] = true
		}
		for _, id := range line.IDs {
			if before, seen := batchOf[id]; seen && before != line.Batch {
				wrong = append(wrong, fmt.Sprintf("span %s in batch %s and in batch %s", id, before, line.Batch))
			}
			batchOf[id] = line.Batch
		}
	}
	return wrong
}
