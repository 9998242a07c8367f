package ws_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// directions reads a capture's two directions, as the pieces that were read.
func directions(t *testing.T, path string) map[string][][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string][][]byte{}
	for d := json.NewDecoder(r); ; {
		var line struct {
			Dir string
			B64 []byte
		}
		if err := d.Decode(&line); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(line.B64) > 0 {
			out[line.Dir] = append(out[line.Dir], line.B64)
		}
	}
}

// reader is a Handler that checks what real servers and clients send.
type reader struct {
	t                       *testing.T
	last                    int64 // the last byte told
	start                   int64
	texts, binaries, closes int
	payload, sizes, spoken  int64 // binary bytes: handed over, summed of messages, since an audio.start
	wire                    int64
}

func (r *reader) MessageStart(_ ws.Opcode, off int64) {
	if off != r.last+1 {
		r.t.Errorf("message at %d behind %d", off, r.last)
	}
	r.start = off
}

func (r *reader) Payload(p []byte, off int64, wire bool) {
	if off < r.start || wire && off < r.start+2 {
		r.t.Errorf("payload at %d of a message at %d", off, r.start)
	}
	r.payload += int64(len(p))
}

func (r *reader) Message(m ws.Message) {
	if m.Start != r.start || m.Frames == 1 && m.End-m.Start+1 != m.Wire || m.Err != nil || m.Truncated {
		r.t.Errorf("message %d..%d: %+v", m.Start, m.End, m.Err)
	}
	r.last, r.wire = m.End, r.wire+m.Wire
	if m.Op == ws.Binary {
		r.binaries++
		r.sizes += m.Size
		r.spoken += m.Size
		return
	}
	r.texts++
	var e struct {
		Type       string
		TotalBytes int64 `json:"total_bytes"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		r.t.Errorf("text at %d: %v", m.Start, err)
	}
	switch e.Type {
	case "audio.start":
		r.spoken = 0
	case "audio.done":
		if e.TotalBytes > 0 && e.TotalBytes != r.spoken {
			r.t.Errorf("%d binary bytes where the server says %d", r.spoken, e.TotalBytes)
		}
	}
}

func (r *reader) Control(op ws.Opcode, p []byte, start, end int64) {
	if start != r.last+1 {
		r.t.Errorf("control frame at %d behind %d", start, r.last)
	}
	r.last, r.wire = end, r.wire+end-start+1
	if op != ws.Close {
		return
	}
	r.closes++
	if _, _, ok := ws.CloseCode(p); !ok {
		r.t.Errorf("close %q", p)
	}
}

func (r *reader) Lost(err error, off int64) { r.t.Errorf("lost at %d: %v", off, err) }

// negotiated reads the extensions of a capture's answer.
func negotiated(t *testing.T, pieces [][]byte) (client, server *ws.Deflate) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(bytes.Join(pieces, nil))), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	client, server, err = ws.Negotiated(strings.Join(resp.Header.Values("Sec-WebSocket-Extensions"), ", "))
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestCaptures: what the real servers and their clients sent is read to the end.
func TestCaptures(t *testing.T) {
	var files []string
	for _, flow := range []string{"speech-ws", "realtime", "duplex", "video-chat"} {
		found, _ := filepath.Glob("../../../testdata/captures/*/" + flow + "*.wire.jsonl*")
		files = append(files, found...)
	}
	if len(files) < 20 {
		t.Fatalf("%d captures", len(files))
	}
	var compressed int
	var texts, binaries, closes int
	for _, path := range files {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			dirs := directions(t, path)
			client, server := negotiated(t, dirs["s"])
			for dir, z := range map[string]*ws.Deflate{"c": client, "s": server} {
				all := bytes.Join(dirs[dir], nil)
				head := bytes.Index(all, []byte("\r\n\r\n")) + 4
				r := &reader{t: t, last: int64(head)}
				s := ws.Scanner{H: r, FromClient: dir == "c"}
				if z != nil {
					s.Compress(*z)
					compressed++
				}
				s.Start(int64(head))
				skip := head
				for _, p := range dirs[dir] {
					n := min(skip, len(p))
					skip -= n
					s.Feed(p[n:])
				}
				if !s.Idle() || s.MidFrame() || s.Offset() != int64(len(all)) || r.wire != int64(len(all)-head) {
					t.Errorf("%s: idle=%t at %d of %d, %d bytes in frames", dir, s.Idle(), s.Offset(), len(all), r.wire)
				}
				if r.payload != r.sizes || r.texts == 0 {
					t.Errorf("%s: %d bytes of %d, %d texts", dir, r.payload, r.sizes, r.texts)
				}
				s.Close()
				texts, binaries, closes = texts+r.texts, binaries+r.binaries, closes+r.closes
			}
		})
	}
	t.Logf("%d captures, %d directions compressed: %d texts, %d binaries, %d closes", len(files), compressed, texts, binaries, closes)
	if compressed < 4 || binaries == 0 || closes == 0 {
		t.Error("no compressed direction, no binary message or no close frame in any capture")
	}
}
