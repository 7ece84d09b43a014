package pluginlist

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// lineStarts returns the offset of each line of a document, as YAML counts lines.
func lineStarts(document []byte) []int {
	starts := []int{0}
	for at := 0; at < len(document); {
		c, size := utf8.DecodeRune(document[at:])
		at += size
		switch c {
		case '\r':
			if at < len(document) && document[at] == '\n' {
				at++
			}
			starts = append(starts, at)
		case '\n', 0x85, 0x2028, 0x2029:
			starts = append(starts, at)
		}
	}
	return starts
}

// extent returns the place of the text of a scalar, with its quotes but without its
// anchor and tag. For a rare form it is a guess: the caller reads the result again.
func extent(document []byte, lines []int, n *yaml.Node) (from, to int, ok bool) {
	if n.Line < 1 || n.Line > len(lines) {
		return 0, 0, false
	}
	from = lines[n.Line-1]
	for range n.Column - 1 { // counted in characters
		_, size := utf8.DecodeRune(document[from:])
		from += size
	}
	for from < len(document) && (document[from] == '&' || document[from] == '!') {
		word := bytes.IndexAny(document[from:], " \t\r\n")
		if word < 0 {
			return 0, 0, false
		}
		from += word
		from += len(document[from:]) - len(bytes.TrimLeft(document[from:], " \t\r\n"))
	}
	if from >= len(document) {
		return 0, 0, false
	}
	switch document[from] {
	case '"':
		to = endOfQuoted(document, from)
	case '\'':
		to = endOfSingle(document, from)
	case '|', '>':
		to = endOfBlock(document, from)
	default:
		to = endOfPlain(document, from, n.Value)
	}
	return from, to, to > from
}

// endOfSingle returns the end of a text in single quotes, or 0. A quote in the text is
// written twice.
func endOfSingle(document []byte, from int) int {
	for at := from + 1; at < len(document); at++ {
		if document[at] != '\'' {
			continue
		}
		if at+1 == len(document) || document[at+1] != '\'' {
			return at + 1
		}
		at++
	}
	return 0
}

// endOfPlain returns the end of a text without quotes, or 0. Its words may have any
// space between them.
func endOfPlain(document []byte, from int, value string) int {
	at := from
	for i, word := range strings.Fields(value) {
		if i > 0 {
			at += len(document[at:]) - len(bytes.TrimLeft(document[at:], " \t\r\n"))
		}
		if !bytes.HasPrefix(document[at:], []byte(word)) {
			return 0
		}
		at += len(word)
	}
	return at
}

// endOfBlock returns the end of a block ("|", ">"): after the last line that is
// indented as its first.
func endOfBlock(document []byte, from int) int {
	indent, at, end := -1, from, 0
	for {
		newline := bytes.IndexByte(document[at:], '\n')
		if newline < 0 {
			return end
		}
		at += newline + 1
		line, _, _ := bytes.Cut(document[at:], []byte("\n"))
		text := bytes.TrimRight(bytes.TrimLeft(line, " "), "\r")
		depth := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case len(text) == 0:
			continue
		case indent < 0:
			indent = depth
		case depth < indent:
			return end
		}
		end = at + depth + len(text)
	}
}

// quoteLines returns a text in double quotes with as many lines as the text that it
// replaces: an escaped line break adds nothing to the text.
func quoteLines(text string, was []byte) string {
	quoted := quoteText(text)
	if breaks := bytes.Count(was, []byte("\n")); breaks > 0 {
		last := was[bytes.LastIndexByte(was, '\n')+1:]
		indent := max(1, len(last)-len(bytes.TrimLeft(last, " ")))
		quoted = strings.TrimSuffix(quoted, `"`) + strings.Repeat("\\\n"+strings.Repeat(" ", indent), breaks) + `"`
	}
	return quoted
}
