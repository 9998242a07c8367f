package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// conversation is one connection: the client's messages and the server's answers
// in turn.
type conversation struct {
	requests, answers []string
}

// talkThrough holds a conversation with a raw upstream, through a relay where rig
// is true, and returns what each side received.
func talkThrough(t testing.TB, talk conversation, rig bool) (upstream, client string, recs []*timeline.Record) {
	t.Helper()
	var got strings.Builder
	served := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		defer close(served)
		for i, want := range talk.requests {
			b := make([]byte, len(want))
			n, err := io.ReadFull(c, b)
			got.Write(b[:n])
			if err != nil {
				return
			}
			caseSend(t, c, talk.answers[i])
		}
		rest, _ := io.ReadAll(c) // to the client's FIN
		got.Write(rest)
	})
	addr, stop := strings.TrimPrefix(up, "http://"), func() []*timeline.Record { return nil }
	if rig {
		r := startCaseRig(t, up, nil)
		addr, stop = r.addr, r.stop
	}
	c := caseDial(t, addr)
	var answers strings.Builder
	for i, request := range talk.requests {
		caseSend(t, c, request)
		b := make([]byte, len(talk.answers[i]))
		n, err := io.ReadFull(c, b)
		answers.Write(b[:n])
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("the client's end = %v, want FIN", err)
	}
	answers.Write(rest)
	<-served
	_ = c.Close()
	return got.String(), answers.String(), stop()
}

// wantUntouched holds a conversation through the relay and checks that both sides
// received what the other one sent.
func wantUntouched(t *testing.T, talk conversation) []*timeline.Record {
	t.Helper()
	upstream, client, recs := talkThrough(t, talk, true)
	if diff := cmp.Diff(strings.Join(talk.requests, ""), upstream); diff != "" {
		t.Errorf("requests changed (-sent +arrived):\n%s", diff)
	}
	if diff := cmp.Diff(strings.Join(talk.answers, ""), client); diff != "" {
		t.Errorf("answers changed (-sent +arrived):\n%s", diff)
	}
	for _, r := range recs {
		checkNulls(t, r)
	}
	return recs
}

// plain is a request and answer whose reading shows that the thread was kept.
const (
	plainRequest = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
	plainAnswer  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)

// TestC80HopByHopFieldsPass: nothing is taken away, and the reader keeps the thread.
func TestC80HopByHopFieldsPass(t *testing.T) {
	body := `{"model":"m"}`
	get := func(fields string) string { return "GET /v1/models HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n" }
	for _, c := range []struct {
		name, request, answer string
	}{
		{"named by Connection", get("Connection: close, X-Sec\r\nX-Sec: 1\r\n"), "HTTP/1.1 200 OK\r\nConnection: X-Back\r\nX-Back: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"},
		{"two Connection lines", get("Connection: \r\nConnection: X-Sec\r\nX-Sec: 1\r\n"), "HTTP/1.1 200 OK\r\nConnection:\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"},
		{"Proxy-Authorization", get("Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"), "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"},
		{"announced trailer", get("TE: trailers\r\n"), "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"},
		{"unannounced trailers", get("TE: trailers\r\n"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nhi\r\n0;z\r\nX-Sum: 1\r\nX-More:\r\n\r\n"},
		{"trailer of a request", "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\nd\r\n" + body + "\r\n0\r\nX-Sum: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"h2c asked for and ignored", get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
		{"two equal lengths", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\ncontent-length: 13\r\n\r\n" + body, "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := wantUntouched(t, conversation{[]string{c.request, plainRequest}, []string{c.answer, plainAnswer}})
			if len(recs) != 2 {
				t.Fatalf("%d records, want 2: the thread was lost", len(recs))
			}
			for i, r := range recs {
				if r.Analysis != "full" || r.Status == nil {
					t.Errorf("record %d: analysis %s, status %v, want full", i, r.Analysis, r.Status)
				}
				if b, _ := json.Marshal(r); strings.Contains(string(b), "c2VjcmV0") {
					t.Errorf("record %d holds the client's secret: %s", i, b)
				}
			}
			wantTerminal(t, recs[1], timeline.Success, "done")
		})
	}
}

// TestC80Upgrades: what comes behind a 101 is a tunnel, timed as one.
func TestC80Upgrades(t *testing.T) {
	frames := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, c := range []struct{ name, protocol, fields string }{
		{"h2c", "h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"},
		{"unknown", "foo/2", "Connection: upgrade\r\nUpgrade: Foo/2\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := wantUntouched(t, conversation{
				[]string{"GET / HTTP/1.1\r\nHost: x\r\n" + c.fields + "\r\n" + frames, "more\x00\xff"},
				[]string{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + c.protocol + "\r\n\r\n" + frames, "HTTP/1.1 200 OK\r\n\r\n"},
			})
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			r := recs[0]
			wantTerminal(t, r, timeline.Success, "tunnel_closed")
			if r.Analysis != "lost" || r.AnalysisReason == nil || *r.AnalysisReason != "opaque("+c.protocol+")" || *r.Status != 101 {
				t.Errorf("analysis = %s (%v), status %d, want opaque(%s)", r.Analysis, r.AnalysisReason, *r.Status, c.protocol)
			}
			if r.BytesUp < int64(len(frames)) || r.BytesDown < int64(len(frames)) {
				t.Errorf("bytes up %d, down %d, want the tunnel's counted", r.BytesUp, r.BytesDown)
			}
		})
	}
}

// TestC80AmbiguousFraming: two ways to tell a body's end: flagged, and the rest of
// the connection is not misread.
func TestC80AmbiguousFraming(t *testing.T) {
	chunked := "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range []struct {
		name, request, answer string
	}{
		{"request, both", "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunked, plainAnswer},
		{"request, two lengths", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + chunked, plainAnswer},
		{"request, list of lengths", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\n" + chunked, plainAnswer},
		{"request, no number", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n" + chunked, plainAnswer},
		{"request, chunked is not last", "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n" + chunked, plainAnswer},
		{"answer, both", plainRequest, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
		{"answer, two lengths", plainRequest, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nhi!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := wantUntouched(t, conversation{[]string{c.request}, []string{c.answer}})
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1: nothing behind it may be read", len(recs))
			}
			wantFlag(t, recs[0], "ambiguous_framing", true)
			if recs[0].Analysis != "lost" {
				t.Errorf("analysis = %s, want lost", recs[0].Analysis)
			}
		})
	}
}

// TestC81TargetsPass: no byte of a target changes, and records hold no query.
func TestC81TargetsPass(t *testing.T) {
	many := "/v1/models?" + strings.TrimPrefix(strings.Repeat("&a=1", 10001), "&")
	for _, c := range []struct{ name, target, path string }{
		{"semicolon", "/v1/models?model=a;b&voice=c", "/v1/models"},
		{"bad escape", "/v1/models?x=%zz&voice=c", "/v1/models"},
		{"spaces", "/v1/models?a=%20+&a=", "/v1/models"},
		{"escaped slash", "/v1%2Fmodels?key=secret", "/v1%2Fmodels"},
		{"doubled slash", "//v1//models", "//v1//models"},
		{"dots", "/v1/../v1/./models", "/v1/../v1/./models"},
		{"trailing mark", "/v1/models?", "/v1/models"},
		{"two marks", "/v1/models?a?b=secret", "/v1/models"},
		{"absolute", "http://user:secret@host/v1/models?key=secret", "/v1/models"},
		{"bytes beyond ASCII", "/v1/mod\xc3\xa9les?\xff=1", "/v1/mod\xc3\xa9les"},
		{"10,001 parameters", many, "/v1/models"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := wantUntouched(t, conversation{[]string{"GET " + c.target + " HTTP/1.1\r\nHost: x\r\n\r\n"}, []string{plainAnswer}})
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			wantTerminal(t, recs[0], timeline.Success, "done")
			if recs[0].Path == nil || *recs[0].Path != c.path {
				t.Errorf("path = %v, want %q", recs[0].Path, c.path)
			}
			if b, _ := json.Marshal(recs[0]); strings.Contains(string(b), "secret") || strings.Contains(string(b), "voice") {
				t.Errorf("the record holds the query: %s", b)
			}
		})
	}
	t.Run("over the bound of a head", func(t *testing.T) {
		target := "/v1/models?" + strings.Repeat("secret=1&", 10001)
		recs := wantUntouched(t, conversation{[]string{"GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"}, []string{plainAnswer}})
		if len(recs) != 1 || recs[0].Analysis != "lost" || recs[0].AnalysisReason == nil {
			t.Fatalf("%d records, want one whose analysis is lost", len(recs))
		}
		if b, _ := json.Marshal(recs[0]); strings.Contains(string(b), "secret") {
			t.Errorf("the record holds the query: %s", b)
		}
	})
}

// TestC82UnmodifiedMeansUnmodified: the same conversation, direct and relayed, is the
// same to the byte on both sides.
func TestC82UnmodifiedMeansUnmodified(t *testing.T) {
	body := `{"model":"m"}`
	for _, c := range []struct {
		name string
		talk conversation
	}{
		{"odd case and duplicates", conversation{
			[]string{"POST /v1/x HTTP/1.1\r\nhOsT: Other.Example:99\r\nX-mixed-CASE: 1\r\nx-MIXED-case: 2\r\nX-Mixed-Case: 1\r\nCoNtEnT-lEnGtH: 13\r\n\r\n" + body},
			[]string{"HTTP/1.1 200 Fine\r\nx-b: 2\r\nX-A: 1\r\nX-b: 1\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\ncontent-LENGTH: 2\r\n\r\nhi"},
		}},
		{"empty values and white space", conversation{
			[]string{"GET / HTTP/1.1\r\nHost:\r\nX-Empty:\r\nX-Space:  \t \r\nX-Tail: a \t\r\nX-None:b\r\n\r\n"},
			[]string{"HTTP/1.1 200 \r\nX-Empty: \r\nX-None:b\r\nContent-Length:2\r\n\r\nhi"},
		}},
		{"no Date, no User-Agent, no Host", conversation{
			[]string{"GET /v1/models HTTP/1.0\r\n\r\n"},
			[]string{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
		}},
		{"obs-text", conversation{
			[]string{"GET / HTTP/1.1\r\nHost: x\r\nX-Text: caf\xe9 \xff\x80\r\nX-Request-Id: \xe9\xff1\r\n\r\n"},
			[]string{"HTTP/1.1 200 D\xe9j\xe0\r\nX-Text: \x80\xfe\r\nServer: \xe9\r\nContent-Length: 2\r\n\r\n\xff\x00"},
		}},
		{"folded lines and bare line feeds", conversation{
			[]string{"GET / HTTP/1.1\nHost: x\nX-Fold: a\n b\n\tc\n\n"},
			[]string{"HTTP/1.1 200 OK\nX-Fold: a\n b\nContent-Length: 2\n\nhi"},
		}},
		{"tracing and forwarding", conversation{
			[]string{"GET / HTTP/1.1\r\nHost: x\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate:\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\nForwarded: for=1.2.3.4\r\nVia: 1.0 a\r\nAccept-Encoding: identity;q=0\r\n\r\n"},
			[]string{"HTTP/1.1 200 OK\r\nVia: 1.1 b\r\nAge: 0\r\nContent-Length: 2\r\n\r\nhi"},
		}},
		{"chunk extensions and cases", conversation{
			[]string{"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ChUnKeD\r\n\r\n00D;a=b\r\n" + body + "\r\n000\r\n\r\n"},
			[]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0002 \r\nhi\r\n0\r\n\r\n"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantUp, wantDown, _ := talkThrough(t, c.talk, false)
			gotUp, gotDown, recs := talkThrough(t, c.talk, true)
			if diff := cmp.Diff(wantUp, gotUp); diff != "" {
				t.Errorf("the server received something else (-direct +relayed):\n%s", diff)
			}
			if diff := cmp.Diff(wantDown, gotDown); diff != "" {
				t.Errorf("the client received something else (-direct +relayed):\n%s", diff)
			}
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			checkNulls(t, recs[0])
			if recs[0].Analysis != "full" || recs[0].Status == nil || *recs[0].Status != 200 {
				t.Errorf("analysis = %s (%s), want full with status 200", recs[0].Analysis, fmt.Sprint(recs[0].AnalysisReason))
			}
		})
	}
}
