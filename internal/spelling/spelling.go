// Package spelling finds the known word that is most similar to an unknown word, for messages
// such as "did you mean port?". Its callers pass the known words.
package spelling

import "strings"

// Nearest returns the word of list that differs from word by the fewest letters, ignoring
// case. It returns "" if no word of list is similar: a word is similar if it differs by at
// most two letters, and by at most half of the letters of word. If word has more than 23
// letters, more than two letters may differ, but less than a sixth of its letters.
func Nearest(word string, list []string) string {
	letters := len([]rune(word))
	best, least := "", min(max(3, letters/6), letters/2+1)
	for _, candidate := range list {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns the number of letters that must be inserted, removed, changed or swapped
// with the next letter to turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
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
