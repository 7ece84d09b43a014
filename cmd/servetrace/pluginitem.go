package main

import (
	"regexp"
	"strings"
)

// pluginItem is an item in a list of plugins: WHERE, NAME=WHERE, or either of them with
// @PIN at the end.
type pluginItem struct {
	name  string // empty if the item has no name
	where string // path, bare name, address or Python function, with the escapes of the list
	pin   string // "sha256:" and the digest of the file; empty if the item has no pin
}

// parseItems returns the items of a list of plugins. It skips empty items.
func parseItems(list string) []pluginItem {
	var items []pluginItem
	for text := range strings.SplitSeq(list, ",") {
		name, where, named := strings.Cut(strings.TrimSpace(text), "=")
		if !named {
			name, where = "", name
		}
		where, pin, _ := strings.Cut(where, "@")
		if where != "" {
			items = append(items, pluginItem{name, where, pin})
		}
	}
	return items
}

// joinItems returns the list of plugins with these items.
func joinItems(items []pluginItem) string {
	var texts []string
	for _, i := range items {
		texts = append(texts, i.String())
	}
	return strings.Join(texts, ",")
}

// String returns the item as the list of plugins has it.
func (i pluginItem) String() string {
	text := i.where
	if i.name != "" {
		text = i.name + "=" + text
	}
	if i.pin != "" {
		text += "@" + i.pin
	}
	return text
}

// isAt reports whether the item names this path, bare name or address.
func (i pluginItem) isAt(where string) bool { return unescape.Replace(i.where) == where }

// escape replaces the characters that have a meaning in a list of plugins. unescape is
// its reverse.
var (
	escape   = strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40")
	unescape = strings.NewReplacer("%2C", ",", "%2c", ",", "%3D", "=", "%3d", "=", "%40", "@")
)

// escaped matches the texts that unescape replaces. No item of a list can name a path that
// contains such a text.
var escaped = regexp.MustCompile(`%(2[Cc]|3[Dd]|40)`)
