package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// drawing is the plugin's pretty output for a trace in a batch.
type drawing struct {
	text  string // as printed, without the empty line at the end
	plain string // without colours
}

var _ printed = (*drawing)(nil)

var (
	colours     = regexp.MustCompile("\x1b\\[[0-9;]*m")
	headingForm = regexp.MustCompile(`^trace [0-9a-f]{32}  (?:continued  )?([0-9]+) spans?\b`)
	requestForm = regexp.MustCompile(`\brequest_id=(\S+)`)
)

func (d *drawing) requestID() string {
	if found := requestForm.FindStringSubmatch(d.plain); found != nil {
		return found[1]
	}
	return ""
}

func (d *drawing) spans() int {
	n, err := strconv.Atoi(headingForm.FindStringSubmatch(d.plain)[1])
	if err != nil {
		return 0 // too many digits
	}
	return n
}

func (d *drawing) String() string {
	heading, _, _ := strings.Cut(d.plain, "\n")
	return fmt.Sprintf("drawing %q", heading)
}

// readDrawings splits r at empty lines and sends the parts to drawings.
func readDrawings(r io.Reader, drawings chan<- *drawing) error {
	var text strings.Builder
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if line != "\n" {
			text.WriteString(line)
		}
		if (line == "\n" || err != nil) && text.Len() > 0 {
			one := &drawing{text: text.String(), plain: colours.ReplaceAllString(text.String(), "")}
			if !headingForm.MatchString(one.plain) {
				return fmt.Errorf("read the drawings: %q is not a drawing", one.plain)
			}
			drawings <- one
			text.Reset()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the drawings: %w", err)
		}
	}
}

// checkDrawings returns an error if an expected span is missing, or not below its
// parent.
func checkDrawings(all []*drawing, want []expect) error {
	count := 0
	var text strings.Builder
	for _, one := range all {
		count += one.spans()
		text.WriteString(one.plain)
	}
	wrong := []error{differs("number of spans drawn", count, len(want))}
	if len(all) == 1 { // otherwise a batch was sealed in the middle of the request
		rest := text.String()
		for _, e := range want {
			family, _, _ := strings.Cut(e.name, " ") // the end of the line may be cut
			_, after, found := strings.Cut(rest, family)
			if !found {
				wrong = append(wrong, fmt.Errorf("span %q is not drawn below the one before it", e.name))
				continue
			}
			rest = after
		}
	}
	for _, key := range []string{"ray.job_id=", "ray.task_id=", "ray.request_id="} {
		if !strings.Contains(text.String(), key) {
			wrong = append(wrong, fmt.Errorf("drawing has no %s", key))
		}
	}
	return errors.Join(wrong...)
}

// minColumns is the width that the headings of drawings need.
const minColumns = 60

// terminalSettings returns variables that make the plugin draw for the terminal behind
// w, although it prints to a pipe. It returns nil if w is no terminal.
func terminalSettings(w io.Writer) []string {
	file, ok := w.(*os.File)
	if !ok {
		return nil
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil
	}
	return []string{"FORCE_COLOR=1", "COLUMNS=" + strconv.Itoa(max(int(size.Col), minColumns))}
}
