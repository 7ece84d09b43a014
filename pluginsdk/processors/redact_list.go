package processors

import (
	"bytes"
	"path"
	"strings"
)

// An arguments is a walk over the members of an array that may be a command
// line, or a pair of name and value, or a key line by line: of these a member
// may be a secret for what stands before it.
type arguments struct {
	met     int
	before  nameClass // what the name tells that is the last member
	option  bool      // it is one of a command line
	letter  byte      // the option that is the last member, if it has one letter
	command string    // the last one met that takes secrets in such options
	login   bool      // "login" was met
	key     bool      // within a private key
}

// shortOptions are the options with a secret of commands that have one letter.
var shortOptions = map[string]string{
	"curl": "uU", "http": "a", "https": "a", "xh": "a", "sshpass": "p", "redis-cli": "a", "mongo": "p", "mongosh": "p",
	"mongodump": "p", "mongorestore": "p", "ldapsearch": "w", "ldapmodify": "w", "ldapadd": "w", "ldapwhoami": "w",
	"mysql": "p", "mysqldump": "p", "mysqladmin": "p", "mariadb": "p", "mariadb-dump": "p",
}

// secret tells whether a member is a secret, and remembers it for the next. last
// says that none follows.
func (a *arguments) secret(member []byte, last bool) bool {
	tells := false
	switch {
	case a.key, string(member) == Redacted:
		tells = a.key
	case len(member) == 0:
	case a.before != namePlain && (a.option && member[0] != '-' || !a.option && a.met == 1 && last):
		tells = a.before.tellsOf(member)
	case a.letter != 0:
		tells = a.tellsOfLetter(a.letter, member)
	}
	a.remember(member)
	return tells
}

// tellsOfLetter says whether what an option of one letter has is a secret.
func (a *arguments) tellsOfLetter(letter byte, value []byte) bool {
	switch {
	case len(value) == 0 || value[0] == '-':
		return false
	case strings.IndexByte(shortOptions[a.command], letter) >= 0:
		return a.command != "curl" && !strings.HasPrefix(a.command, "http") || bytes.IndexByte(value, ':') >= 0
	default:
		return a.login && letter == 'p'
	}
}

func (a *arguments) remember(member []byte) {
	a.met++
	a.before, a.option, a.letter = namePlain, false, 0
	switch name := bytes.TrimLeft(member, "-"); {
	case len(name) == 0 || len(name) > maxKeyLength:
	case len(name) == len(member) && shortOptions[path.Base(string(name))] != "":
		a.command = path.Base(string(name))
	case !isName(name):
	case len(name) == len(member):
		a.before = classifyName(name)
		a.login = a.login || string(name) == "login"
	case string(member) == "--user", string(member) == "--proxy-user":
		a.letter = 'u'
	case len(member) == len("-p"):
		a.letter = name[0]
	default:
		a.option = true
		a.before = classifyName(name)
	}
	if bytes.Contains(member, []byte("-----")) {
		a.key = bytes.Contains(member, []byte("PRIVATE KEY")) &&
			bytes.LastIndex(member, []byte("-----BEGIN")) > bytes.LastIndex(member, []byte("-----END"))
	}
}

func isName(text []byte) bool {
	for _, c := range text {
		if !isNameByte(c) {
			return false
		}
	}
	return true
}

// isPairValue tells of the key that a value has beside its name in a map:
// {"name": "password", "value": …}.
func isPairValue(key []byte) bool { return len(key) == len("value") && foldPrefix(key, "value") }

// pairName says what the name in a map tells of the value beside it.
func pairName(members []byte) nameClass {
	for f := fieldsOf(members); f.next(); {
		if !f.is(fieldMember) {
			continue
		}
		kv, err := keyValueOf(f.content)
		if err != nil || !foldPrefix(kv.key, "name") && !foldPrefix(kv.key, "key") && !foldPrefix(kv.key, "header") {
			continue
		}
		if class := classifyName(textOf(kv.value)); class != namePlain {
			return class
		}
	}
	return namePlain
}

// textOf is the text that an AnyValue is, nil if it is none.
func textOf(raw []byte) []byte {
	f := fieldsOf(raw)
	if f.next() && f.is(fieldString) && len(f.left) == 0 {
		return f.content
	}
	return nil
}
