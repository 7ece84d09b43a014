// Package spelling tells what a misspelt word may have been meant to be, for
// messages to operators. It knows no words of its own.
package spelling

import "strings"

// Nearest gives the word of list that word may have been meant to be; empty for
// none.
func Nearest(word string, list []string) string {
	best, least := "", min(3, len([]rune(word))/2+1)
	for _, candidate := range list {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance counts the letters to put in, take out, change or swap with the next
// one to get from a to b. It is not asked about long words: one that differs by
// three letters in length is at three.
func distance(a, b string) int {
	const far = 3
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) >= far || len(y)-len(x) >= far {
		return far
	}
	var before []int
	last := make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
