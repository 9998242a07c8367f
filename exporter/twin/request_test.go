package twin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnstreamed(t *testing.T) {
	for _, v := range []struct {
		name, in, want string
		err            error
	}{
		{"chat", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`, `{"model":"m","stream":false,"messages":[]}`, nil},
		{"spaces and numbers stay", "{\n \"seed\": 1e2,\n \"stream\" : true ,\n \"top_p\":0.10}\n", "{\n \"seed\": 1e2,\n \"stream\" : false ,\n \"top_p\":0.10}\n", nil},
		{"first member dropped", `{ "stream_format":"sse" , "input":"Yo"}`, `{ "input":"Yo"}`, nil},
		{"last member dropped", `{"input":"Yo","stream_format":"audio" }`, `{"input":"Yo" }`, nil},
		{"all dropped", `{"stream_format":"sse","request_id":"a"}`, `{}`, nil},
		{"two dropped ahead", `{"request_id":"a","stream_options":null, "stream":true}`, `{ "stream":false}`, nil},
		{"escaped name", `{"str\u0065am":true}`, `{"str\u0065am":false}`, nil},
		{"said twice", `{"stream":false,"stream":true}`, `{"stream":false,"stream":false}`, nil},
		{"as text", `{"stream":"true","a":"}"}`, `{"stream":false,"a":"}"}`, nil},
		{"as a number", `{"stream":1}`, `{"stream":false}`, nil},
		{"within another object", `{"stream":true,"x":{"stream":true,"request_id":1}}`, `{"stream":false,"x":{"stream":true,"request_id":1}}`, nil},
		{"no stream", `{"input":"Yo"}`, "", ErrNoStream},
		{"stream false", `{"stream":false}`, "", ErrNoStream},
		{"the last one counts", `{"stream":true,"stream":0}`, "", ErrNoStream},
		{"no object", `[{"stream":true}]`, "", ErrBody},
		{"no JSON", `stream=true`, "", ErrBody},
		{"nothing", ``, "", ErrBody},
		{"cut", `{"stream":true,`, "", ErrBody},
	} {
		got, err := unstreamed(append([]byte(v.in), "rest"...)[:len(v.in)]) // more capacity than length
		if !errors.Is(err, v.err) || string(got) != v.want {
			t.Errorf("%s: %s, %v; want %s, %v", v.name, got, err, v.want, v.err)
		}
	}
}

// FuzzUnstreamed: what comes out asks for no stream and is otherwise the same.
func FuzzUnstreamed(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","stream":true,"stream_options":{"a":1},"x":[1,2]}`, `{"stream_format":"sse"}`,
		` {"request_id" : "r" ,"a":"\"}{","stream":true}`, `{"stream":1,"stream":true,"":{}}`, `{"stre\u0061m":"yes"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		was := bytes.Clone(in)
		out, err := unstreamed(in)
		if !bytes.Equal(was, in) {
			t.Fatal("the client's bytes were written to")
		}
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(in, &before) != nil {
			return // deeper than the standard library goes
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		for name, m := range members {
			if _, ok := before[name]; ok && m == off {
				before[name] = json.RawMessage("false")
			}
			if m == drop {
				delete(before, name)
			}
		}
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("%q became %q:\n%s", in, out, d)
		}
		if _, err := unstreamed(out); !errors.Is(err, ErrNoStream) {
			t.Errorf("%q still asks for a stream: %v", out, err)
		}
	})
}

func TestTwinOfRequest(t *testing.T) {
	up := &url.URL{Scheme: "http", Host: "server:8091", Path: "/ignored"}
	q := Request{Method: "POST", Target: "/v1/audio/speech?b=1;2&a=%2F", Body: []byte(`{"stream":true}`), Header: [][2]string{
		{"host", "front"},
		{"authorization", "Bearer key"},
		{"content-type", "application/json"},
		{"connection", "keep-alive, X-Mine"},
		{"x-mine", "1"},
		{"content-length", "15"},
		{"transfer-encoding", "chunked"},
		{"x-request-id", "r1"},
		{"accept-encoding", "gzip"},
		{"expect", "100-continue"},
		{"X-Two", "1"},
		{"x-two", "2"},
		{"traceparent", "00-1"},
	}}
	req, err := q.twin(up)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Authorization": {"Bearer key"}, "Content-Type": {"application/json"}, "X-Two": {"1", "2"},
		"Accept-Encoding": {"identity"}, "X-Omnitap-Twin": {"1"}, "User-Agent": nil,
	}
	if d := cmp.Diff(want, req.Header); d != "" {
		t.Errorf("header (-want +got):\n%s", d)
	}
	if req.Host != "front" || req.URL.Host != "server:8091" || req.URL.RequestURI() != q.Target || req.ContentLength != int64(len(`{"stream":false}`)) {
		t.Errorf("host %q at %q, target %q, length %d", req.Host, req.URL.Host, req.URL.RequestURI(), req.ContentLength)
	}
	q.Target = "http://elsewhere/v1/x?y"
	if req, err = q.twin(up); err != nil || req.URL.Host != "server:8091" || req.URL.RequestURI() != "/v1/x?y" {
		t.Errorf("an absolute target goes to %v, %v", req, err)
	}
}

func TestNoTwinOfRequest(t *testing.T) {
	up := &url.URL{Scheme: "http", Host: "server"}
	stream := []byte(`{"stream":true}`)
	for _, v := range []struct {
		name string
		q    Request
		want error
	}{
		{"GET", Request{Method: "GET", Target: "/", Body: stream}, ErrTarget},
		{"authority", Request{Method: "POST", Target: "elsewhere:1", Body: stream}, ErrTarget},
		{"no path of the server", Request{Method: "POST", Target: "//elsewhere/x", Body: stream}, ErrTarget},
		{"form", Request{Method: "POST", Target: "/", Body: stream, Header: [][2]string{{"Content-Type", "multipart/form-data; boundary=x"}}}, ErrForm},
		{"websocket", Request{Method: "POST", Target: "/", Body: stream, Header: [][2]string{{"upgrade", "websocket"}}}, ErrUpgrade},
		{"gzip", Request{Method: "POST", Target: "/", Body: stream, Header: [][2]string{{"Content-Encoding", "gzip"}}}, ErrBody},
		{"a twin", Request{Method: "POST", Target: "/", Body: stream, Header: [][2]string{{"x-omnitap-twin", "1"}}}, ErrIsTwin},
		{"no body", Request{Method: "POST", Target: "/"}, ErrBody},
	} {
		if _, err := v.q.twin(up); !errors.Is(err, v.want) {
			t.Errorf("%s: %v, want %v", v.name, err, v.want)
		}
	}
}
