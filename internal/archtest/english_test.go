package archtest

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A wordRule bounds how often a habit of bad English may occur in the comments of
// a package.
type wordRule struct {
	name    string
	pattern *regexp.Regexp
	// perThousand is twice the highest frequency in connect-go, OpenTelemetry's
	// sdk/trace, drpc and go-plugin, per 1,000 words of comment.
	perThousand float64
}

// wordRules follow the nine rules for plain English. The rule for "where" finds it
// at the start of a clause, in the sense of "if".
var wordRules = []wordRule{
	{"what", regexp.MustCompile(`(?i)\bwhat(ever)?\b`), 0.6},
	{"who", regexp.MustCompile(`(?i)\b(who|whoever|whom|whose)\b`), 0.2},
	{"nobody, somebody, everybody", regexp.MustCompile(`(?i)\b(no|some|every)body\b`), 0.4},
	{"says, tells, told", regexp.MustCompile(`(?i)\b(says?|tells?|told)\b`), 1.2},
	{"that of, those, one that", regexp.MustCompile(`(?i)\b(that of|those|ones? that)\b`), 0.6},
	{"where (for if)", regexp.MustCompile(`(^|[.,;:(] )[Ww]here\b`), 1.6},
	{"but for, as a rule", regexp.MustCompile(`(?i)\b(but for|as a rule)\b`), 0.2},
	{"can not (for cannot)", regexp.MustCompile(`(?i)\bcan not\b`), 0},
}

// fewWords is the number of comment words below which a package is not judged.
const fewWords = 300

// TestCommentsUsePlainWords counts the habits of wordRules in the comments of each
// package, except in tests and generated files.
func TestCommentsUsePlainWords(t *testing.T) {
	for _, p := range loadModule(t) {
		text := p.comments()
		words := len(strings.Fields(text))
		if words < fewWords {
			continue
		}
		if broken := judge(text, words); len(broken) > 0 {
			t.Errorf("%s: %d words of comment, too often: %s", p.dir, words, strings.Join(broken, "; "))
		}
	}
}

// judge returns a description of each habit that occurs more often in text than its rule
// allows. Each rule whose bound is not zero allows at least one occurrence.
func judge(text string, words int) (broken []string) {
	for _, rule := range wordRules {
		n := len(rule.pattern.FindAllString(text, -1))
		if allowed := int(math.Ceil(rule.perThousand * float64(words) / 1000)); n > allowed {
			broken = append(broken, rule.name+": "+strconv.Itoa(n)+", at most "+strconv.Itoa(allowed))
		}
	}
	return broken
}

func TestJudge(t *testing.T) {
	plain := strings.Repeat("Close closes the connection. If it fails, it returns an error. ", 30)
	odd := "It is what nobody says, who can not. Where those stand, but for one that tells. "
	if broken := judge(plain, 330); broken != nil {
		t.Errorf("plain text is refused: %q", broken)
	}
	if broken := judge(strings.Repeat(odd, 10), 170); len(broken) != len(wordRules) {
		t.Errorf("odd text: %d broken rules, want %d: %q", len(broken), len(wordRules), broken)
	}
}
