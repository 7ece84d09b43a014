package waterfall

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/text/width"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/test/golden"
	"github.com/servetrace/servetrace/tracing"
)

// ms is a moment: so many milliseconds after noon of a day in 2026.
func ms(n float64) int64 { return 1795262400_000000000 + int64(n*1e6) }

func spanID(n byte) trace.SpanID { return trace.SpanID{7: n} }

// aSpan is one of these, 0 for no parent, that ran from..to.
func aSpan(id, parent byte, name string, from, to float64, attributes ...attribute.KeyValue) *Span {
	return &Span{
		ID: spanID(id), Parent: spanID(parent), Name: name, Kind: trace.SpanKindInternal,
		Start: ms(from), End: ms(to), Service: "shop", Attributes: attributes,
	}
}

func exception(at float64, kind, message string) Event {
	return Event{Name: "exception", At: ms(at), Attributes: []attribute.KeyValue{
		attribute.String("exception.type", kind), attribute.String("exception.message", message),
		attribute.String("exception.stacktrace", "goroutine 1 [running]:"),
	}}
}

// aRequest is a request as the runtime traces it, with Ray's context.
func aRequest() []*Span {
	rayContext := func(task string) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("serve.request_id", "r-1"), attribute.String("serve.task_id", task),
			attribute.String("ray.job_id", "01000000"), attribute.String("ray.actor_id", task[16:]),
			attribute.String("ray.task_id", task), attribute.String("ray.request_id", "r-1"),
		}
	}
	proxyTask, replicaTask := strings.Repeat("a", 40)+"01000000", strings.Repeat("b", 40)+"01000000"
	proxy := aSpan(1, 0, "proxy_http_request HelloWorld GET /fail", 0, 100, append(rayContext(proxyTask),
		attribute.String("request_id", "r-1"), attribute.String("deployment", "HelloWorld"), attribute.String("app", "default"),
		attribute.String("request_type", "http"), attribute.String("request_method", "GET"),
		attribute.String("resource.name", "proxy_http_request HelloWorld GET /fail"),
		attribute.String("http.method", "GET"), attribute.String("http.route", "/fail"), attribute.Int("http.status_code", 500))...)
	router := aSpan(2, 1, "route_to_replica HelloWorld __call__", 1, 11, append(rayContext(proxyTask),
		attribute.String("request_id", "r-1"), attribute.String("deployment", "HelloWorld"),
		attribute.Float64("serve.queue_wait_ms", 9.5))...)
	replica := aSpan(3, 2, "replica_handle_request HelloWorld __call__", 11, 99.5, append(rayContext(replicaTask),
		attribute.String("replica_id", "abcdefgh"), attribute.String("serve.replica_id", "default#HelloWorld#abcdefgh"),
		attribute.Int("http.status_code", 500))...)
	user := aSpan(4, 3, "predict", 20, 90, append(rayContext(replicaTask),
		attribute.String("serve.replica_id", "default#HelloWorld#abcdefgh"), attribute.String("deployment", "HelloWorld"),
		attribute.Int("tokens", 512), attribute.String("prompt", "two words"))...)
	for _, s := range []*Span{proxy, router, replica} {
		s.Kind = trace.SpanKindServer
	}
	for _, s := range []*Span{proxy, replica, user} {
		s.Code = codes.Error
		s.Events = []Event{exception(90, "*model.Error", "the model is not to be found")}
	}
	proxy.Message = "500"
	user.Events = append(user.Events, Event{Name: "token", At: ms(30)}, Event{Name: "token", At: ms(60)})
	user.Links = []Link{{trace.TraceID{1}, spanID(9)}}
	call := aSpan(5, 4, "GET", 40, 40.4, attribute.String("http.method", "GET"), attribute.Int("http.status_code", 500))
	call.Kind, call.Code, call.Service = trace.SpanKindClient, codes.Ok, "shop"
	inside := aSpan(6, 5, "lookup", 40.1, 40.3)
	inside.Service, inside.Kind = "stock", trace.SpanKindServer
	return []*Span{user, replica, router, proxy, call, inside} // as they may come
}

// drawnAs draws spans of a trace that is new.
func drawnAs(l Look, spans ...*Span) string {
	return string(Draw(LayOut(trace.TraceID{0xab, 15: 1}, spans, nil, l), l))
}

func TestDrawings(t *testing.T) {
	for name, got := range map[string]string{
		"request-120":       drawnAs(Look{Width: 120}, aRequest()...),
		"request-80":        drawnAs(Look{Width: 80}, aRequest()...),
		"request-60":        drawnAs(Look{Width: 60}, aRequest()...),
		"request-30":        drawnAs(Look{Width: 30}, aRequest()...),
		"request-ascii-80":  drawnAs(Look{Width: 80, ASCII: true}, aRequest()...),
		"request-colour-80": drawnAs(Look{Width: 80, Colour: true}, aRequest()...),
		"odd-80":            drawnAs(Look{Width: 80}, oddSpans()...),
		"texts-80":          drawnAs(Look{Width: 80}, oddTexts()...),
		"texts-ascii-80":    drawnAs(Look{Width: 80, ASCII: true}, oddTexts()...),
		"deep-60":           drawnAs(Look{Width: 60}, deep(14)...),
	} {
		t.Run(name, func(t *testing.T) { golden.Compare(t, name+".golden", got) })
	}
}

// served is a request as the runtime traces it under the names of a mode.
func served(t *testing.T, mode string) []*Span {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	cfg := tracing.DefaultConfig()
	cfg.Semconv, cfg.JobID = mode, "01000000"
	provider, err := tracing.NewProvider(cfg, sdktrace.NewSimpleSpanProcessor(memory))
	if err != nil {
		t.Fatal(err)
	}
	p := spans.New(provider)
	request := func() *identity.Request {
		return &identity.Request{ID: "r-1", App: "default", Deployment: "D", Route: "/users/{id}", ModelID: "m1"}
	}
	ctx, proxy := p.StartProxy(t.Context(), spans.ProxyStart{
		Request: request(), Method: "GET", RoutePath: "/users/7",
		HTTPRequest: httptest.NewRequest("GET", "http://shop.example/users/7", nil),
	})
	ctx, router := p.StartRouter(ctx, spans.RouterStart{App: "default", Deployment: "D", ModelID: "m1"})
	ctx, replica := p.StartReplica(ctx, spans.ReplicaStart{Request: request(), Method: "GET"})
	_, load := p.StartModelLoad(ctx, "m1")
	_, batch := p.StartBatch([]context.Context{ctx}, "embed")
	load.EndWork(nil)
	batch.EndWork(nil)
	router.EndRouter(spans.RouterResult{})
	replica.EndReplica(spans.ReplicaResult{StatusCode: 200})
	proxy.EndProxy(spans.ProxyResult{StatusCode: 200})

	stubs := memory.GetSpans()
	slices.Reverse(stubs)
	numbers := map[trace.SpanID]byte{} // in the place of ids that are drawn
	for i, s := range stubs {
		numbers[s.SpanContext.SpanID()] = byte(i + 1)
	}
	var spans []*Span
	for i, s := range stubs {
		one := aSpan(byte(i+1), numbers[s.Parent.SpanID()], s.Name, float64(i), 10, s.Attributes...)
		one.Kind, one.Code = s.SpanKind, s.Status.Code
		spans = append(spans, one)
	}
	return spans
}

// Under names of today a request looks as under Ray's, and says each thing once.
func TestNamesOfEveryMode(t *testing.T) {
	for _, mode := range []string{tracing.SemconvRay, tracing.SemconvStable, tracing.SemconvDup} {
		golden.Compare(t, "names-"+mode+"-80.golden", drawnAs(Look{Width: 80}, served(t, mode)...))
	}
}

// oddSpans have parents, ids and times that do not fit together.
func oddSpans() []*Span {
	remote := aSpan(1, 99, "called from elsewhere", 0, 50)
	remote.RemoteParent = true
	backwards := aSpan(12, 1, "ends before it starts", 30, 20)
	endless := aSpan(13, 1, "no end", 35, 0)
	endless.End = 0
	timeless := aSpan(14, 1, "no times", 0, 0)
	timeless.Start, timeless.End = 0, 0
	unspecified := aSpan(15, 1, "", 45, 46)
	unspecified.Kind = trace.SpanKindUnspecified
	return []*Span{
		remote,
		aSpan(2, 98, "parent not come", 5, 40),
		aSpan(3, 2, "child of that", 6, 20), aSpan(4, 2, "its sibling", 21, 22), aSpan(5, 4, "below the sibling", 21, 22),
		aSpan(6, 6, "its own parent", 10, 12),
		aSpan(7, 8, "of a circle", 11, 12), aSpan(8, 7, "of the same", 12, 13), aSpan(9, 8, "below the circle", 10, 13),
		aSpan(10, 1, "an id", 25, 28), aSpan(10, 1, "the same id", 26, 28), aSpan(11, 10, "child of the first", 26, 27),
		aSpan(0, 1, "without an id", 29, 30),
		backwards, endless, timeless, unspecified,
		aSpan(16, 1, "a moment", 50, 50),
	}
}

// oddTexts are texts that must not reach a terminal unchanged, and texts whose width
// differs from their length.
func oddTexts() []*Span {
	long := aSpan(9, 1, strings.Repeat("a name without end ", 20), 8, 9)
	for i := range 128 {
		long.Attributes = append(long.Attributes, attribute.String(fmt.Sprintf("key.%d", i), strings.Repeat("v", i)))
	}
	for i := range 100 {
		long.Events = append(long.Events, Event{Name: "e" + strings.Repeat("!", i%5), At: ms(8 + float64(i)/100)})
		long.Links = append(long.Links, Link{trace.TraceID{byte(i)}, spanID(byte(i))})
	}
	long.Events = append(long.Events, exception(8, "panic", "first line\nsecond\tline\r\n\x1b[31mred\n"+strings.Repeat("and so on ", 99)))
	failing := aSpan(10, 1, "fails often", 9, 10)
	for i := range 10 {
		failing.Events = append(failing.Events, exception(9, "", fmt.Sprint("attempt ", i%7)))
	}
	failing.Events = append(failing.Events, exception(9, "only.Type", " \n"))
	return []*Span{
		failing,
		aSpan(1, 0, "\x1b]0;title\x07\x1b[2J cleared\r\n\u009b31m", 0, 10, attribute.String("\x1b[1mkey", "\x1b[31mred\x1b[0m")),
		aSpan(2, 1, "bidi \u202eabc\u202c \u2066x\u2069 \u061c", 1, 2),
		aSpan(3, 1, "日本語の名前 ｆｕｌｌ 한국어", 2, 3, attribute.String("都市", "東京")),
		aSpan(4, 1, "e\u0301a\u0308 z"+strings.Repeat("\u0323", 50)+"algo \u0301", 3, 4),
		aSpan(5, 1, "\u0301begins with a mark", 4, 5),
		aSpan(6, 1, "emoji 😀 👩\u200d🚀 ❤\ufe0f 🇩🇪", 5, 6),
		aSpan(7, 1, "broken \xff\xc3( \ufffd zero\u200bwidth nbsp\u00a0 \u2028", 6, 7),
		aSpan(8, 1, "private \ue0b0 tag \U000e0041", 7, 8, attribute.String("empty", ""), attribute.String("quoted", `say "hi"`)),
		long,
	}
}

func deep(n int) []*Span {
	var spans []*Span
	for i := range n {
		spans = append(spans, aSpan(byte(i+1), byte(i), fmt.Sprintf("level %d", i), float64(i), float64(2*n-i)))
		if i%3 == 0 {
			spans = append(spans, aSpan(byte(100+i), byte(i), fmt.Sprintf("beside %d", i), float64(i)+0.5, float64(i)+1, attribute.Int("n", i)))
		}
	}
	return spans
}

// TestContinued draws a trace whose spans come with four batches.
func TestContinued(t *testing.T) {
	l, id := Look{Width: 80}, trace.TraceID{0xab, 15: 1}
	var memory Recent
	var out strings.Builder
	all := aRequest()
	for _, batch := range [][]*Span{
		{all[0]},         // the user's span, before its parents
		{all[5]},         // the last one, whose parent is missing
		{all[1], all[3]}, // replica and proxy, the router between them missing
		{all[4], all[2], aSpan(7, 4, "late", 95, 120)},
	} {
		d := LayOut(id, batch, memory.Find(id), l)
		out.Write(Draw(d, l))
		memory.Add(d)
	}
	golden.Compare(t, "continued-80.golden", out.String())
}

func TestDurations(t *testing.T) {
	for nanos, want := range map[time.Duration]string{
		0: "0ns", 999: "999ns", 1000: "1.00µs", 9_994: "9.99µs", 9_996: "10.0µs", 99_940: "99.9µs", 99_960: "100µs",
		999_499: "999µs", 999_500: "1.00ms", 999_499_999: "999ms", 999_500_000: "1.00s",
		59_949 * time.Millisecond: "59.9s", 59_950 * time.Millisecond: "1m00s", 119_600 * time.Millisecond: "2m00s",
		time.Hour - 501*time.Millisecond: "59m59s", time.Hour - 500*time.Millisecond: "1h00m",
		100*time.Hour + 29*time.Second: "100h00m", math.MaxInt64: "2562047h47m",
	} {
		if got := duration(int64(nanos), false); got != want {
			t.Errorf("%d ns are %q, want %q", nanos, got, want)
		}
	}
	if got := duration(1500, true); got != "1.50us" {
		t.Errorf("in ASCII 1500 ns are %q", got)
	}
}

func TestKinds(t *testing.T) {
	for kind, want := range map[trace.SpanKind]string{
		trace.SpanKindUnspecified: "", trace.SpanKindInternal: "internal", trace.SpanKindServer: "server",
		trace.SpanKindClient: "client", trace.SpanKindProducer: "producer", trace.SpanKindConsumer: "consumer", 7: "",
	} {
		if got := kindText(kind); got != want {
			t.Errorf("kind %d is %q, want %q", kind, got, want)
		}
	}
}

// TestWhatIsLeftOutIsCounted although the first of the last line would fill it.
func TestWhatIsLeftOutIsCounted(t *testing.T) {
	long := strings.Repeat("x", 200)
	s := aSpan(1, 0, "span", 0, 1)
	for i := range attributeLines + 3 {
		s.Attributes = append(s.Attributes, attribute.String(fmt.Sprint("key.", i), long))
	}
	s.Events = []Event{{Name: long}, {Name: "two"}, {Name: "three"}}
	s.Links = make([]Link, 3)
	for _, width := range []int{30, 60, 80} {
		got := drawnAs(Look{Width: width}, s)
		for _, want := range []string{"…  +3 more\n", "…  +2 more\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("with %d columns there is no %q in:\n%s", width, want, got)
			}
		}
		if n := strings.Count(got, " more\n"); n != 3 {
			t.Errorf("with %d columns %d of 3 lines say that there is more:\n%s", width, n, got)
		}
	}
	s.Events = s.Events[:2] // the last needs no place for a number
	s.Events[0].Name = long[:50]
	if got := drawnAs(Look{Width: 70}, s); !strings.Contains(got, "  two\n") {
		t.Errorf("two events that go into a line:\n%s", got)
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// check reports faults that no drawing may have.
func check(t *testing.T, got string, l Look) {
	t.Helper()
	if !l.Colour && strings.Contains(got, "\x1b") {
		t.Fatalf("escape sequence without colours: %q", got)
	}
	got = sgr.ReplaceAllString(got, "")
	if !utf8.ValidString(got) {
		t.Fatalf("not UTF-8: %q", got)
	}
	for line := range strings.Lines(strings.TrimSuffix(got, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		cells := 0
		for _, r := range line {
			switch kind := width.LookupRune(r).Kind(); {
			case unicode.IsControl(r), l.ASCII && r > unicode.MaxASCII, !unicode.IsGraphic(r) && r != 0x200c && r != 0x200d:
				t.Fatalf("%+q in a line: %q", r, line)
			case unicode.In(r, unicode.Mn, unicode.Me), r == 0x200c, r == 0x200d:
			case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
				cells += 2
			default:
				cells++
			}
		}
		if cells > l.Width {
			t.Fatalf("a line has %d cells, of %d: %q", cells, l.Width, line)
		}
	}
}

// checkRows sees that each span is there once, and after its parent.
func checkRows(t *testing.T, d Trace, spans []*Span) {
	t.Helper()
	var path []*node
	seen := map[*Span]bool{}
	for _, r := range d.rows {
		if r.depth > len(path) || r.depth > 0 && path[r.depth-1] != r.up || r.depth == 0 && r.up != nil {
			t.Fatalf("%q at depth %d is not below its parent", r.name, r.depth)
		}
		path = append(path[:r.depth], r.node)
		if r.span != nil {
			if seen[r.span] {
				t.Fatalf("%q is there twice", r.name)
			}
			seen[r.span] = true
		}
	}
	if len(seen) != len(spans) {
		t.Fatalf("%d of %d spans are there", len(seen), len(spans))
	}
}

func TestEveryWidth(t *testing.T) {
	for _, spans := range [][]*Span{aRequest(), oddSpans(), oddTexts(), deep(40)} {
		for width := 1; width <= 500; width += 1 + width/30 {
			for _, l := range []Look{{Width: width}, {Width: width, ASCII: true, Colour: true}} {
				d := LayOut(trace.TraceID{1}, spans, nil, l)
				checkRows(t, d, spans)
				check(t, string(Draw(d, l)), l)
			}
		}
	}
}

// TestManySpans draws traces as large as a batch: one below the other, all below
// one, all without their parents, and one circle.
func TestManySpans(t *testing.T) {
	const n = 10_000 // as many as five batches of the host's default
	for shape, parent := range map[string]func(i uint64) uint64{
		"chain":  func(i uint64) uint64 { return i - 1 },
		"fan":    func(i uint64) uint64 { return min(i-1, 1) },
		"lost":   func(i uint64) uint64 { return i + n },
		"circle": func(i uint64) uint64 { return i%n + 1 },
	} {
		t.Run(shape, func(t *testing.T) {
			var spans []*Span
			for i := range uint64(n) {
				s := aSpan(0, 0, fmt.Sprint("span ", i), float64(i), float64(i+1), attribute.Int("i", int(i)))
				binary.BigEndian.PutUint64(s.ID[:], i+1)
				binary.BigEndian.PutUint64(s.Parent[:], parent(i+1))
				spans = append(spans, s)
			}
			slices.Reverse(spans)
			l := Look{Width: 80}
			d := LayOut(trace.TraceID{1}, spans, nil, l)
			checkRows(t, d, spans)
			check(t, string(Draw(d, l)), l)
		})
	}
}

// TestManyCycles draws as many cycles as spans, and spans in cycles of two, with time
// for a number of steps in proportion to the spans.
func TestManyCycles(t *testing.T) {
	const n = 100_000
	for shape, parent := range map[string]func(i uint64) uint64{
		"own parents": func(i uint64) uint64 { return i },
		"pairs":       func(i uint64) uint64 { return i ^ 1 },
	} {
		t.Run(shape, func(t *testing.T) {
			var spans []*Span
			for i := range uint64(n) {
				s := aSpan(0, 0, "span", float64(i), float64(i+1))
				binary.BigEndian.PutUint64(s.ID[:], i+2)
				binary.BigEndian.PutUint64(s.Parent[:], parent(i+2))
				spans = append(spans, s)
			}
			began := time.Now()
			d := LayOut(trace.TraceID{1}, spans, nil, Look{Width: 80})
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			checkRows(t, d, spans)
		})
	}
}

// FuzzDraw makes spans of eight bytes each, and draws them in two batches.
func FuzzDraw(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x09root\x02\x01\x01\x02chil"), "name\x1b[31m", "日本", uint16(80), byte(0))
	f.Add([]byte("\x01\x02\x00\x09aaaa\x02\x01\x01\x02bbbb\x03\x03\x05\x02cccc"), "e\u0301", "\u202e", uint16(7), byte(1))
	f.Fuzz(func(t *testing.T, data []byte, one, two string, width uint16, flags byte) {
		l := Look{Width: int(width)%500 + 1, ASCII: flags&1 != 0, Colour: flags&2 != 0}
		var spans []*Span
		for chunk := range slices.Chunk(data, 8) {
			var b [8]byte
			copy(b[:], chunk)
			s := &Span{
				ID: spanID(b[0] % 16), Parent: spanID(b[1] % 16), RemoteParent: b[4]&1 != 0,
				Name: one, Start: int64(b[2]), End: int64(b[3]), Kind: trace.SpanKind(b[4] % 8),
				Code: codes.Code(b[5] % 4), Message: two[:min(len(two), int(b[5]))], Service: two[:min(len(two), int(b[6]%4))],
			}
			if b[7]&1 != 0 {
				s.Start, s.End = int64(binary.BigEndian.Uint64(b[:])>>1), int64(binary.BigEndian.Uint64(b[:])>>1)+int64(b[7])
			}
			for i := range b[6] % 9 {
				s.Attributes = append(s.Attributes, attribute.String(one[:min(len(one), int(i))], two), attribute.String("ray.task_id", one))
				s.Events = append(s.Events, Event{Name: two, At: int64(b[7])}, exception(0, one, two))
				s.Links = append(s.Links, Link{trace.TraceID{i}, spanID(b[7])})
			}
			spans = append(spans, s)
		}
		if len(spans) == 0 {
			return
		}
		var memory Recent
		half := (len(spans) + 1) / 2
		for _, batch := range [][]*Span{spans[:half], spans[half:]} {
			if len(batch) == 0 {
				continue
			}
			d := LayOut(trace.TraceID{1}, batch, memory.Find(trace.TraceID{1}), l)
			checkRows(t, d, batch)
			check(t, string(Draw(d, l)), l)
			memory.Add(d)
		}
	})
}
