package processors

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

// secretTexts are what the built-in patterns must find, with what is left.
var secretTexts = []struct{ in, want string }{
	{"mail bob@example.com now", "mail [REDACTED] now"},
	{"BOB.o'neil+x@Mail.Example.CO.UK", "[REDACTED]"},
	{"jürgen@müller.example", "[REDACTED]"},
	{"/find?q=bob%40example.com&x=1", "/find?q=[REDACTED]&x=1"},
	{"a@b.cd,e@f.gh", "[REDACTED],[REDACTED]"},

	{"postgres://user:hunter2@db:5432/x", "postgres://[REDACTED]@db:5432/x"},
	{"https://0123456789abcdef@git.internal/x.git", "https://[REDACTED]@git.internal/x.git"},
	{"u=postgres%3A%2F%2Fuser%3Ahunter2%40db%2Fx", "u=postgres%3A%2F%2F[REDACTED]%40db%2Fx"},
	{"dial root:hunter2@tcp(db:3306)/x", "dial [REDACTED]@tcp(db:3306)/x"},
	{"amqp://u:p@ss@mq/", "amqp://[REDACTED]@mq/"},

	{"Authorization: Bearer abc.def-123", "Authorization: [REDACTED]"},
	{"got bearer abcdefgh", "got bearer [REDACTED]"},
	{"Bearer%20abcdef12", "Bearer%20[REDACTED]"},
	{"bearer token abc12345", "bearer token [REDACTED]"},
	{"BASIC dXNlcjpwYXNz!", "BASIC [REDACTED]!"},
	{"Basic dXNlcjpwYXNzMQ==", "Basic [REDACTED]"},
	{`-H "authorization: ApiKey x y z" -v`, `-H "authorization: [REDACTED]`},
	{"Cookie: a=b; c=d\nnext: line", "Cookie: [REDACTED]\nnext: line"},
	{`{"Set-Cookie":"sid=1; Path=/","n":1}`, `{"Set-Cookie":"[REDACTED]","n":1}`},

	{"t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl;", "t=[REDACTED];"},
	{"eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "[REDACTED]"},
	{"eyJlbmMiOiJBMTI4R0NNIn0.a.b.c.d rest", "[REDACTED] rest"},

	{"ghp_0123456789abcdefABCDEF", "[REDACTED]"},
	{"x=github_pat_11AAAAAAA0123456789_abcdef", "x=[REDACTED]"},
	{"glpat-abcdefghij0123456789", "[REDACTED]"},
	{"xoxb-1234567890-abcdef", "[REDACTED]"},
	{"sk_live_abcdefgh0123", "[REDACTED]"},
	{"sk-proj-abcdefghij0123456789", "[REDACTED]"},
	{"(AIzaSyA0123456789abcdefghijklmnopqrstuv)", "([REDACTED])"},
	{"npm_0123456789abcdefghijABCDEFGHIJ012345", "[REDACTED]"},
	{"hf_abcdefghijklmnopqrstuvwx", "[REDACTED]"},
	{"SG.abcdefghijklmnop.qrstuvwxyz0123456789", "[REDACTED]"},
	{"hvs.CAESIJabcdefghijklmnop", "[REDACTED]"},
	{"dapi0123456789abcdef0123456789abcdef", "[REDACTED]"},

	{"AKIAIOSFODNN7EXAMPLE", "[REDACTED]"},
	{"AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE AROAIOSFODNN7EXAMPLE", "[REDACTED] [REDACTED] [REDACTED]"},

	{"a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b", "a [REDACTED] b"},
	{"-----BEGIN PRIVATE KEY-----\nMIIE cut off", "[REDACTED]"},
	{"-----BEGIN PGP PRIVATE KEY BLOCK-----\nMIIE\n-----END PGP PRIVATE KEY BLOCK----- b", "[REDACTED] b"},

	{"password=hunter2&x=1", "password=[REDACTED]&x=1"},
	{"db_Password = 'it is long' x", "db_Password = '[REDACTED]' x"},
	{`{"api_key": "s3 c\"r3t", "n": 1}`, `{"api_key": "[REDACTED]", "n": 1}`},
	{`{\"password\":\"hunter2\",\"n\":1}`, `{\"password\":\"[REDACTED]\",\"n\":1}`},
	{`{"password":"never closed, for it was cut`, `{"password":"[REDACTED]`},
	{"password='two\nlines", "password='[REDACTED]"},
	{`{\\\"password\\\":\\\"a b\\\"}`, `{\\\"password\\\":\\\"[REDACTED]\\\"}`},
	{`{"password"=>"a b"}`, `{"password"=>"[REDACTED]"}`},
	{`password := "a b"`, `password := "[REDACTED]"`},
	{`{"password": ["a", "b"], "n": 1}`, `{"password": [REDACTED], "n": 1}`},
	{"user[password]=a&passwd[]=b&x=1", "user[password]=[REDACTED]&passwd[]=[REDACTED]&x=1"},
	{`{'token': 'abc'}`, `{'token': '[REDACTED]'}`},
	{"Server=db;Password=x,y;User=u", "Server=db;Password=[REDACTED];User=u"},
	{"AccountKey=abc+/def==;E=1", "AccountKey=[REDACTED];E=1"},
	{"q=%7B%22password%22%3A%22a%20b%22%2C%22n%22%3A1%7D", "q=%7B%22password%22%3A%22[REDACTED]%22%2C%22n%22%3A1%7D"},
	{"u=/find%3Fx%253D1%2526password%253Dabc", "u=/find%3Fx%253D1%2526password%253D[REDACTED]"},
	{"user%5Bpassword%5D=abc", "user%5Bpassword%5D=[REDACTED]"},
	{"a=100%&b=%zz&q=bob%2540example.com", "a=100%&b=%zz&q=[REDACTED]"},
	{"a%2525252540b", "[REDACTED]"}, // encoded more often than anybody looks
	{"?token=abc&x=1", "?token=[REDACTED]&x=1"},
	{`{"token":"abc"}`, `{"token":"[REDACTED]"}`},
	{"client_secret%3Dabc", "client_secret%3D[REDACTED]"},
	{"/blob?sv=1&sig=abc%2B", "/blob?sv=1&sig=[REDACTED]"},

	{"card 4111 1111 1111 1111.", "card [REDACTED]."},
	{"4111-1111-1111-1111 12/25", "[REDACTED] 12/25"},
	{"pan=378282246310005", "pan=[REDACTED]"},
	{"3782 822463 10005", "[REDACTED]"},
	{"12 5555555555554444", "12 [REDACTED]"},
	{"1111 4111 1111 1111 1111", "1111 [REDACTED]"},
	{"card=4111+1111+1111+1111&x=1", "card=[REDACTED]&x=1"},
	{"q=card%3D4111111111111111%22", "q=card%3D[REDACTED]%22"},
	{"card_6011111111111117", "card_[REDACTED]"},
	{"4111111111111111,5105105105105100", "[REDACTED],[REDACTED]"},
}

// plainTexts look like secrets and are none.
var plainTexts = []string{
	"", "GET /api/{id}", "héllo, 世界", "user@localhost", "@scope/pkg", "100%", "50%20off%zz", "a @ b.c", "50%40x",
	"http://example.com:8080/a@b", "https://example.com/?at=@",
	"missing bearer token", "Bearer authentication required", "basic authentication failed", "Basic understanding",
	"eyJ", "eyJhbGciOi", "risk-with-a-long-name-here-and-more", "task_id", "hf_hub", "npm_config", "SG.x",
	"AKIA", "xAKIAIOSFODNN7EXAMPLE", "XAKIAIOSFODNN7EXAMPLEX",
	"-----BEGIN CERTIFICATE-----", "secret", "the password", "password=", "password: ", "tokens=12", "max_tokens: 4096",
	"unexpected token: x", "request_id: 5", "cookies: off",
	"4111111111111112", "4111 1111 1111 1112", "1234567890123456", "a4111111111111111", "4111111111111111b",
	"0.4111111111111111", "41111111111111111111111", "4111 1111-1111 1111", "4111  1111 1111 1111",
	"1700000000000", "1700000000000000000", "4bf92f3577b34da6a3ce929d0e0e4736",
	"550e8400-e29b-41d4-a716-446655440000", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	Redacted, "x " + Redacted + " y", "password=" + Redacted, "Bearer " + Redacted,
}

func rulesOf(tb testing.TB, c RedactConfig) *redactRules {
	tb.Helper()
	rules, err := c.compile()
	if err != nil {
		tb.Fatal(err)
	}
	return rules
}

func TestPatterns(t *testing.T) {
	rules := rulesOf(t, RedactConfig{})
	for _, c := range secretTexts {
		if rules.clean([]byte(c.in)) {
			t.Errorf("%q passes, want it redacted", c.in)
		}
		got := rules.redactText([]byte(c.in))
		if got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
		if !rules.clean([]byte(got)) {
			t.Errorf("%q becomes %q, which is not clean", c.in, got)
		}
	}
	for _, text := range plainTexts {
		if got := rules.redactText([]byte(text)); !rules.clean([]byte(text)) || got != text {
			t.Errorf("%q becomes %q, want it to pass", text, got)
		}
	}
}

// TestHintsAreNecessary: where a pattern finds something, its hint is there, so
// that trying by hints misses nothing.
func TestHintsAreNecessary(t *testing.T) {
	rules := rulesOf(t, RedactConfig{})
	for _, c := range secretTexts {
		for _, text := range []string{c.in, strings.ToUpper(c.in), strings.ToLower(c.in), " " + c.in + " ", "é" + c.in + "é"} {
			checkHints(t, rules, []byte(text))
		}
	}
}

func checkHints(t *testing.T, rules *redactRules, text []byte) {
	t.Helper()
	for i := range rules.patterns {
		p := &rules.patterns[i]
		if found := rules.secrets(p, text); len(found) > 0 && p.hint != 0 && hintsOf(text)&p.hint == 0 {
			t.Errorf("%s finds %q in %q, and the text has not its hint", p.name, text[found[0][0]:found[0][1]], text)
		}
	}
}

func FuzzRedactText(f *testing.F) {
	for _, c := range secretTexts {
		f.Add(c.in)
	}
	for _, text := range slices.Concat(plainTexts, ordinaryTexts, secretForms, knownTokens) {
		f.Add(text)
	}
	rules := rulesOf(f, RedactConfig{BlockedValues: []string{`EMP-[0-9]+`, `[A-Z]{8}`}})
	f.Fuzz(func(t *testing.T, text string) {
		checkHints(t, rules, []byte(text))
		got := rules.redactText([]byte(text))
		if most := len(Redacted) * (1 + len(text)); len(got) > most || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q becomes %q", text, got)
		}
		if rules.clean([]byte(text)) != (got == text) && text != Redacted {
			t.Errorf("%q: clean %v, and becomes %q", text, rules.clean([]byte(text)), got)
		}
		if got != Redacted && !rules.clean([]byte(got)) {
			t.Errorf("%q becomes %q, which is not clean", text, got)
		}
	})
}

func TestRedactConfigured(t *testing.T) {
	rules := rulesOf(t, RedactConfig{
		BlockedKeys: []string{"*ssn*"}, IgnoredKeys: []string{"kept.*"}, BlockedValues: []string{`EMP-[0-9]{6}`, `\b7{9}\b`},
		AllowedValues: []string{`.*@example\.com`}, Without: []string{"card"}, MaxValueBytes: 64, MaxDepth: 2,
	})
	for in, want := range map[string]string{
		"id EMP-123456":         "id [REDACTED]",
		"bob@example.com":       "bob@example.com",
		"bob@example.org":       "[REDACTED]",
		"bob@example.com.org":   "[REDACTED]",
		"4111111111111111":      "4111111111111111",
		strings.Repeat("x", 65): Redacted,
		strings.Repeat("x", 64): strings.Repeat("x", 64),
		"bad \xff utf-8":        Redacted,
	} {
		if got := rules.redactText([]byte(in)); got != want || rules.clean([]byte(in)) != (in == want) {
			t.Errorf("%q becomes %q (clean: %v), want %q", in, got, rules.clean([]byte(in)), want)
		}
	}
	if rules.cleanInt(777777777) || !rules.cleanInt(777777778) || rules.cleanFloat(777777777) {
		t.Error("the operator's pattern does not see numbers")
	}
	for key, want := range map[string]keyClass{
		"user.SSN": keyBlocked, "kept.password": keyIgnored, "user.password": keyBlocked, "name": keyPlain,
		"bob@example.org": keyRemoved, "bad\xff": keyRemoved, "gen_ai.usage.input_tokens": keyWeak,
		"http.request.header.x-api-key": keyBlocked, "accessToken": keyBlocked, "token.type": keyPlain,
		"accessTokens": keyBlocked, "refresh-tokens": keyBlocked, "user.tokens": keyWeak, "pin": keyWeak, "userPin": keyWeak,
		"pinCode": keyWeak, "pin_count": keyPlain, "spin": keyPlain, "auth": keyWeak, "auth.type": keyPlain, "author": keyPlain,
		"db.apiKeys": keyBlocked, "signing-key": keyBlocked, "primary_key": keyPlain, "new_password1": keyBlocked,
	} {
		if got := rules.classify([]byte(key)); got != want {
			t.Errorf("key %q is of class %d, want %d", key, got, want)
		}
	}
}

func TestRedactAsDecoded(t *testing.T) {
	config := RedactConfig{IgnoredKeys: []string{"kept.*"}, MaxDepth: 2}
	rules, seen := rulesOf(t, config), map[string]string{}
	compare(t, fuzzedSpans, Redact(config), pluginsdk.Setup{}, func(data *tracepb.TracesData) {
		n := naiveRedact{rules, seen}
		for _, rs := range data.ResourceSpans {
			if rs.Resource != nil {
				rs.Resource.Attributes = n.attributes(rs.Resource.Attributes)
			}
			for _, ss := range rs.ScopeSpans {
				ss.Scope.Attributes = n.attributes(ss.Scope.Attributes)
			}
		}
		for _, s := range spansOf(data) {
			s.Name = n.text(s.Name)
			if s.Status != nil {
				s.Status.Message = n.text(s.Status.Message)
			}
			s.Attributes = n.attributes(s.Attributes)
			for _, e := range s.Events {
				e.Name, e.Attributes = n.text(e.Name), n.attributes(e.Attributes)
			}
			for _, l := range s.Links {
				l.Attributes = n.attributes(l.Attributes)
			}
		}
	})
}

// naiveRedact redacts decoded spans. Keys and texts are judged by the same
// rules: these have tests of their own.
type naiveRedact struct {
	rules *redactRules
	seen  map[string]string // texts and what they become
}

func (n naiveRedact) text(s string) string {
	redacted, ok := n.seen[s]
	if !ok {
		redacted = n.rules.redactText([]byte(s))
		n.seen[s] = redacted
	}
	return redacted
}

// attributes changes each key that needs it, once, by its last value.
func (n naiveRedact) attributes(kvs []*commonpb.KeyValue) []*commonpb.KeyValue {
	for _, kv := range slices.Clone(kvs) {
		class := n.rules.classify([]byte(kv.Key))
		if class == keyRemoved {
			kvs = without(kvs, kv.Key)
			continue
		}
		if redacted := n.value(kv.Key, class, kv.Value, 1); !proto.Equal(normalValue(redacted), normalValue(proto.CloneOf(kv.Value))) {
			last, _ := find(kvs, kv.Key)
			kvs = with(kvs, kv.Key, n.value(kv.Key, class, last, 1))
		}
	}
	return kvs
}

// tells is tellsOfValue.
func (n naiveRedact) tells(class nameClass, v *commonpb.AnyValue) bool {
	switch value := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return value.StringValue != Redacted && class.tellsOf([]byte(value.StringValue))
	case *commonpb.AnyValue_BytesValue:
		return class.tellsOf(value.BytesValue)
	case *commonpb.AnyValue_IntValue:
		return class == nameDigits && class.tellsOf(strconv.AppendInt(nil, value.IntValue, 10))
	case *commonpb.AnyValue_ArrayValue:
		return slices.ContainsFunc(value.ArrayValue.Values, func(v *commonpb.AnyValue) bool { return n.tells(class, v) })
	}
	return false
}

func (n naiveRedact) value(key string, class keyClass, v *commonpb.AnyValue, depth int) *commonpb.AnyValue {
	if class == keyBlocked || class == keyWeak && n.tells(classifyName([]byte(key)), v) {
		return textValue(Redacted)
	}
	if v == nil || class == keyIgnored {
		return proto.CloneOf(v)
	}
	number := func(text string) *commonpb.AnyValue {
		if n.text(text) == text {
			return v
		}
		return textValue(n.text(text))
	}
	switch value := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return textValue(n.text(value.StringValue))
	case *commonpb.AnyValue_BytesValue:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte(n.text(string(value.BytesValue)))}}
	case *commonpb.AnyValue_IntValue:
		return number(strconv.FormatInt(value.IntValue, 10))
	case *commonpb.AnyValue_DoubleValue:
		if math.Abs(value.DoubleValue) < 1e20 {
			return number(strconv.FormatFloat(value.DoubleValue, 'f', -1, 64))
		}
	case *commonpb.AnyValue_ArrayValue:
		if depth > n.rules.maxDepth {
			return textValue(Redacted)
		}
		list := &commonpb.ArrayValue{}
		for _, member := range value.ArrayValue.Values {
			list.Values = append(list.Values, n.value("", keyPlain, member, depth+1))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	case *commonpb.AnyValue_KvlistValue:
		if depth > n.rules.maxDepth {
			return textValue(Redacted)
		}
		list := &commonpb.KeyValueList{}
		for _, kv := range value.KvlistValue.Values {
			if class := n.rules.classify([]byte(kv.Key)); class != keyRemoved {
				list.Values = append(list.Values, &commonpb.KeyValue{Key: kv.Key, Value: n.value(kv.Key, class, kv.Value, depth+1)})
			}
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: list}}
	}
	return v
}
