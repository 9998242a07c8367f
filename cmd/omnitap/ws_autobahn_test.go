package main

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	gorilla "github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
)

// The classes of cases of the Autobahn test suite, as raw frames. The relay has no
// opinion on any of them: either end gets what it gets without the relay, down to
// the code with which the other end fails the connection.

// excludedCases are those of Autobahn's cases that are not here, with the reason.
var excludedCases = []struct{ id, reason string }{
	{"frames behind a fatal one (3.2–3.4, 4.1.3–5, 4.2.3–5, 5.3–5.5, 5.9–5.18, 7.1.2–5)", "an end that closes with bytes unread resets the connection, and then it is chance, without a relay too, whether its close frame arrives; each case ends with its first fatal frame"},
	{"6.4.1–4 (how soon invalid text is refused)", "asks when an end refuses: a property of the ends alone"},
	{"9.1.1–5, 9.2.1–5, 9.3.1–8, 9.4.1–8 (each size from 64 KiB to 16 MiB)", "the largest message, and 4 MiB in the smallest fragments, stand for all"},
	{"9.5–9.6 (1 MiB in writes of 64 B to 2 KiB)", "a relay sees no more than smaller reads: writes of 997 bytes stand for them"},
	{"9.7, 9.8 (1,000 round trips of each size)", "time them, which the benchmarks do; 1,000 messages go both ways in TestC48TwoWriters"},
	{"12.1–12.5, 13.1–13.7 with 1,000 messages of each of 18 sizes", "3 messages a connection: every window size and takeover is there, in TestAutobahnCompression"},
	{"window of 8 bits", "zlib makes no raw stream of that window; no client of the tests can offer it"},
}

// The opcodes and bits of frames.
const (
	opText, opBinary, opClose, opPing, opPong = 1, 2, 8, 9, 10
	bitFIN                                    = 0x80
	bitRSV1                                   = 0x40
)

// rawFrame is a frame ahead of masking.
type rawFrame struct {
	first   byte // FIN, RSV and opcode
	payload string
}

// bytes of a frame, masked as a client's or not.
func (f rawFrame) bytes(masked bool) string {
	b := []byte{f.first}
	var mask byte
	if masked {
		mask = 0x80
	}
	switch n := len(f.payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if !masked {
		return string(b) + f.payload
	}
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	b = append(b, key[:]...)
	return string(append(b, masking(key, []byte(f.payload))...))
}

// masking masks or unmasks b in place.
func masking(key [4]byte, b []byte) []byte {
	pattern := bytes.Repeat(key[:], 1024)
	for rest := b; len(rest) > 0; {
		n := subtle.XORBytes(rest, rest, pattern)
		rest = rest[n:]
	}
	return b
}

func whole(opcode byte, payload string) rawFrame { return rawFrame{bitFIN | opcode, payload} }

func closing(code int, reason string) rawFrame {
	return whole(opClose, string([]byte{byte(code >> 8), byte(code)})+reason)
}

// fragments cuts a message into frames of size bytes.
func fragments(opcode byte, payload string, size int) (frames []rawFrame) {
	for at := 0; at == 0 || at < len(payload); at += size {
		f := rawFrame{payload: payload[at:min(len(payload), at+size)]}
		if at == 0 {
			f.first = opcode
		}
		if at+size >= len(payload) {
			f.first |= bitFIN
		}
		frames = append(frames, f)
	}
	return frames
}

// rawCase is a case: frames in writes of chop bytes (0: all in one). A frame that is
// fatal by its header comes in one write: an end that closes ahead of its payload
// resets the connection.
type rawCase struct {
	id     string
	chop   int
	frames []rawFrame
}

// writes cuts a case's bytes, behind a head, into writes.
func (c rawCase) writes(head string, masked bool) (list []string) {
	n := len(c.frames)
	last := ""
	if c.chop > 0 && c.fatal() {
		n--
		last = c.frames[n].bytes(masked)
	}
	rest := head + frameBytes(c.frames[:n], masked)
	for c.chop > 0 && len(rest) > c.chop {
		list = append(list, rest[:c.chop])
		rest = rest[c.chop:]
	}
	return append(list, rest, last)
}

// fatal says whether the last frame's header is: by its bits, its opcode, its length
// or its place.
func (c rawCase) fatal() bool {
	open := false
	for _, f := range c.frames {
		op, fin := f.first&15, f.first&bitFIN != 0
		switch {
		case f.first&0x70 != 0, op > opBinary && op < opClose, op > opPong, op >= opClose && (!fin || len(f.payload) > 125), op < opClose && open != (op == 0):
			return true
		case op < opClose:
			open = !fin
		}
	}
	return false
}

// autobahnCases are the cases of classes 1 to 7 and 10.
func autobahnCases() []rawCase {
	cases := slices.Concat(framingCases(), pingCases(), reservedCases(), fragmentCases(), utf8Cases(), closeCases())
	return append(cases, rawCase{"10.1.1", 0, fragments(opText, strings.Repeat("*", 65536), 1300)})
}

func framingCases() (cases []rawCase) {
	for class, op := range map[string]byte{"1.1": opText, "1.2": opBinary} {
		for i, n := range []int{0, 125, 126, 127, 128, 65535, 65536} {
			cases = append(cases, rawCase{fmt.Sprintf("%s.%d", class, i+1), 0, []rawFrame{whole(op, strings.Repeat("*", n))}})
		}
		cases = append(cases, rawCase{class + ".8", 997, []rawFrame{whole(op, strings.Repeat("*", 65536))}})
	}
	return cases
}

func pingCases() []rawCase {
	var ten []rawFrame
	for i := range 10 {
		ten = append(ten, whole(opPing, fmt.Sprintf("payload-%d", i)))
	}
	return []rawCase{
		{"2.1", 0, []rawFrame{whole(opPing, "")}},
		{"2.2", 0, []rawFrame{whole(opPing, "Hello, world!")}},
		{"2.3", 0, []rawFrame{whole(opPing, "\x00\xff\xfe\xfd\xfc\xfb\x00\xff")}},
		{"2.4", 0, []rawFrame{whole(opPing, strings.Repeat("\xfe", 125))}},
		{"2.5", 0, []rawFrame{whole(opPing, strings.Repeat("\xfe", 126))}},
		{"2.6", 1, []rawFrame{whole(opPing, strings.Repeat("\xfe", 125))}},
		{"2.7", 0, []rawFrame{whole(opPong, "")}},
		{"2.8", 0, []rawFrame{whole(opPong, "unsolicited pong payload")}},
		{"2.9", 0, []rawFrame{whole(opPong, "unsolicited pong payload"), whole(opPing, "ping payload")}},
		{"2.10", 0, ten},
		{"2.11", 1, ten},
	}
}

func reservedCases() (cases []rawCase) {
	hello := whole(opText, "Hello, world!")
	for rsv := byte(1); rsv < 8; rsv++ {
		for _, op := range []byte{opText, opBinary, opPing, opClose} {
			cases = append(cases, rawCase{fmt.Sprintf("3.%d opcode %d", rsv, op), int(rsv) % 2, []rawFrame{hello, {bitFIN | rsv<<4 | op, "Hello"}}})
		}
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		cases = append(
			cases,
			rawCase{fmt.Sprintf("4 opcode %d", op), 0, []rawFrame{whole(op, "")}},
			rawCase{fmt.Sprintf("4 opcode %d with payload, behind a message", op), 1, []rawFrame{hello, whole(op, "reserved")}},
		)
	}
	return cases
}

func fragmentCases() []rawCase {
	ping := whole(opPing, "ping payload")
	first, middle, last := rawFrame{opText, "fragment1"}, rawFrame{0, "fragment2"}, rawFrame{bitFIN, "fragment3"}
	cases := []rawCase{
		{"5.1", 0, []rawFrame{{opPing, "fragment1"}}},
		{"5.2", 0, []rawFrame{{opPong, "fragment1"}}},
		{"5.3", 0, []rawFrame{first, last}},
		{"5.6", 0, []rawFrame{first, ping, last}},
		{"5.9", 0, []rawFrame{{bitFIN, "non-continuation payload"}}},
		{"5.12", 0, []rawFrame{{0, "non-continuation payload"}}},
		{"5.15", 0, []rawFrame{first, last, {0, "fragment4"}}},
		{"5.18", 0, []rawFrame{first, {opText, "fragment2"}}},
		{"5.19", 0, []rawFrame{first, middle, ping, middle, middle, ping, last}},
		{"5 binary inside a text", 0, []rawFrame{first, whole(opBinary, "x")}},
		{"5 empty fragments", 0, []rawFrame{{opText, ""}, {0, ""}, {0, "x"}, {bitFIN, ""}}},
		{"5 message of empty fragments", 0, []rawFrame{{opText, ""}, {0, ""}, {bitFIN, ""}}},
		{"5 close between fragments", 0, []rawFrame{first, closing(1000, "")}},
	}
	for i := range cases { // 5.4, 5.5, 5.7, 5.8, 5.10 and so on: the same in octets
		c := cases[i]
		cases = append(cases, rawCase{c.id + " in octets", 1, c.frames})
	}
	return cases
}

// utf8Texts are of class 6: from Autobahn, after Kuhn's UTF-8 stress test.
var utf8Texts = []string{
	"", "Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
	"\xce", "\xce\xba", "\xce\xba\xe1", "\xce\xba\xe1\xbd", "\x00", "\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80",
	"\x7f", "\xdf\xbf", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf7\xbf\xbf\xbf", "\xfb\xbf\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf\xbf",
	"\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd", "\xf4\x90\x80\x80", "\x80", "\xbf", "\x80\xbf", "\x80\xbf\x80", "\x80\xbf\x80\xbf\x80\xbf\x80\xbf",
	"\xc0 \xc1 \xdf ", "\xe0 \xef ", "\xf0 \xf7 ", "\xf8 \xfb ", "\xfc \xfd ", "\xc0", "\xe0\x80", "\xf0\x80\x80", "\xf8\x80\x80\x80", "\xfc\x80\x80\x80\x80", "\xdf", "\xef\xbf", "\xf7\xbf\xbf",
	"\xc0\xe0\x80\xf0\x80\x80", "\xfe", "\xff", "\xfe\xfe\xff\xff", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xc0\x80", "\xe0\x80\x80",
	"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbe\x80", "\xed\xbf\xbf", "\xed\xa0\x80\xed\xb0\x80", "\xed\xaf\xbf\xed\xbf\xbf",
	"\xef\xbf\xbe", "\xf0\x9f\xbf\xbe", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbe",
}

func utf8Cases() (cases []rawCase) {
	for i, s := range utf8Texts {
		cases = append(
			cases,
			rawCase{fmt.Sprintf("6 text %d", i), 0, []rawFrame{whole(opText, s)}},
			rawCase{fmt.Sprintf("6 text %d cut inside characters", i), 0, fragments(opText, s, 1)},
			rawCase{fmt.Sprintf("6 text %d in octets", i), 1, []rawFrame{whole(opText, s)}},
		)
	}
	return cases
}

func closeCases() (cases []rawCase) {
	for i, frames := range [][]rawFrame{
		{whole(opText, "Hello World!"), closing(1000, "")},
		{whole(opClose, "")}, // 7.3.1
		{whole(opClose, "a")},
		{closing(1000, "")},
		{closing(1000, "Hello World!")},
		{closing(1000, strings.Repeat("*", 123))},
		{whole(opClose, "\x03\xe8"+strings.Repeat("*", 124))},
		{closing(1000, "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited")}, // 7.5.1
		{closing(closeOwn, "bye")},
	} {
		cases = append(cases, rawCase{fmt.Sprintf("7 close %d", i), 0, frames}, rawCase{fmt.Sprintf("7 close %d in octets", i), 1, frames})
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999, 0, 999, 1004, 1005, 1006, 1012, 1013, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases = append(cases, rawCase{fmt.Sprintf("7 code %d", code), 0, []rawFrame{closing(code, "")}})
	}
	return cases
}

// rawKey is the handshake's key of the raw client.
const rawKey = "dGhlIHNhbXBsZSBub25jZQ=="

func rawHandshake(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: mock\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + rawKey + "\r\nSec-WebSocket-Version: 13\r\n\r\n"
}

// rawSwitch is a raw server's answer to a handshake.
func rawSwitch(request string) string {
	_, key, _ := strings.Cut(request, "Sec-WebSocket-Key: ")
	if key == "" {
		_, key, _ = strings.Cut(request, "Sec-Websocket-Key: ")
	}
	key, _, _ = strings.Cut(key, "\r\n")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
}

// rawDial makes the handshake over a raw connection.
func rawDial(t testing.TB, addr, path string) *net.TCPConn {
	t.Helper()
	c := caseDial(t, addr)
	_ = c.SetDeadline(time.Now().Add(clientLimit))
	caseSend(t, c, rawHandshake(path))
	if head, err := readCaseRequest(c); err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatalf("the handshake got %q, %v", head, err)
	}
	return c
}

// sendAll writes one by one. How it ends is the reader's affair: the other side may
// fail the connection before all is written.
func sendAll(c net.Conn, writes []string) {
	for _, w := range writes {
		if _, err := io.WriteString(c, w); err != nil {
			return
		}
	}
}

func frameBytes(frames []rawFrame, masked bool) string {
	if len(frames) == 1 {
		return frames[0].bytes(masked)
	}
	var b strings.Builder
	for _, f := range frames {
		b.WriteString(f.bytes(masked))
	}
	return b.String()
}

// howEnded names the end of a reading.
func howEnded(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "FIN"
	case errors.Is(err, syscall.ECONNRESET):
		return "RST"
	}
	return err.Error()
}

// askServer sends a case's frames and FIN, and returns all that the server answers.
func askServer(t testing.TB, base string, c rawCase) string {
	t.Helper()
	conn := rawDial(t, strings.TrimPrefix(base, "http://"), "/ws/echo?key=raw")
	defer conn.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		sendAll(conn, c.writes("", true))
		_ = conn.CloseWrite()
	})
	got, err := io.ReadAll(conn)
	sending.Wait()
	return fmt.Sprintf("%q, then %s", got, howEnded(err))
}

// bystander is a session that the others must not touch.
type bystander struct{ c *gorilla.Conn }

func startBystander(t testing.TB, base string) *bystander {
	t.Helper()
	c, err := gorillaDial(wsURL(base) + "/ws/echo?key=bystander")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &bystander{c}
}

// check wants an echo.
func (b *bystander) check(t testing.TB, when string) {
	t.Helper()
	_ = b.c.SetReadDeadline(time.Now().Add(clientLimit))
	if err := b.c.WriteMessage(gorilla.TextMessage, []byte(when)); err != nil {
		t.Errorf("%s: another session cannot write: %v", when, err)
	}
	if _, got, err := b.c.ReadMessage(); err != nil || string(got) != when {
		t.Errorf("%s: another session got %q, %v", when, got, err)
	}
}

// TestAutobahnServers: raw frames to real servers.
func TestAutobahnServers(t *testing.T) {
	t.Parallel()
	for _, x := range excludedCases {
		t.Logf("excluded: %s: %s", x.id, x.reason)
	}
	for _, s := range []struct {
		name  string
		start func(t testing.TB) string
	}{
		{"gorilla", startGorillaWS},
		{"coder", startCoderWS},
		{"node", startNodeWS},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			base := s.start(t)
			rig := startCaseRig(t, base, nil)
			other := startBystander(t, "http://"+rig.addr)
			for _, c := range autobahnCases() {
				direct, relayed := askServer(t, base, c), askServer(t, "http://"+rig.addr, c)
				if direct != relayed {
					t.Errorf("%s: the client got %s\nwithout the relay %s", c.id, relayed, direct)
				}
				other.check(t, c.id)
			}
		})
	}
}

// limitCases are of class 9.
func limitCases() []rawCase {
	large := strings.Repeat("*", 16<<20)
	return []rawCase{
		{"9.1.6 text", 0, []rawFrame{whole(opText, large)}},
		{"9.4.7 binary in fragments of 64 KiB", 0, fragments(opBinary, large, 64<<10)},
		{"9.4.1 fragments of 64 B", 0, fragments(opBinary, large[:4<<20], 64)},
	}
}

// TestAutobahnLimits: messages of 16 MiB, and many fragments.
func TestAutobahnLimits(t *testing.T) {
	t.Parallel()
	servers := []func(testing.TB) string{startGorillaWS, startCoderWS}
	for i, c := range limitCases() {
		t.Run(c.id, func(t *testing.T) {
			base := servers[i%2](t)
			rig := startCaseRig(t, base, nil)
			other := startBystander(t, "http://"+rig.addr)
			n := 0
			for _, f := range c.frames {
				n += len(f.payload)
			}
			want := rawFrame{c.frames[0].first | bitFIN, strings.Repeat("*", n)}.bytes(false)
			conn := rawDial(t, rig.addr, "/ws/echo?key=limits")
			go sendAll(conn, c.writes("", true))
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
				t.Errorf("the echo differs at %d of %d, %v", differAt(string(got), want), len(want), err)
			}
			caseSend(t, conn, closing(1000, "").bytes(true))
			rest, err := io.ReadAll(conn)
			if string(rest) != closing(1000, "").bytes(false) || err != nil {
				t.Errorf("behind the echo came %q, %v, want a close", rest, err)
			}
			other.check(t, c.id)
		})
	}
}

// clientView is what a client and its raw server saw of a case.
type clientView struct {
	Got    []string // by the client
	Error  string   // of its last read
	Frames []string // by the server
	End    string
}

// readFrames reads a client's frames, unmasked, to the end.
func readFrames(c net.Conn) (frames []string, end string) {
	r := bufio.NewReader(c)
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return frames, howEnded(err)
		}
		n := uint64(head[1] & 0x7f)
		if n > 125 {
			var ext [8]byte
			_, _ = io.ReadFull(r, ext[8-map[uint64]int{126: 2, 127: 8}[n]:])
			n = binary.BigEndian.Uint64(ext[:])
		}
		var key [4]byte
		_, _ = io.ReadFull(r, key[:])
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return frames, "within a frame: " + howEnded(err)
		}
		masking(key, payload)
		frames = append(frames, fmt.Sprintf("%#x masked %v %d %.8s %.40q", head[0], head[1]&0x80 != 0, n, hashOf(string(payload)), payload[:min(n, 40)]))
	}
}

// servingFrames is a raw server that sends what next gives: frames and FIN.
func servingFrames(t testing.TB) (base string, next func(c rawCase), views <-chan clientView) {
	t.Helper()
	cases, seen := make(chan rawCase, 1), make(chan clientView, 1)
	base = caseUpstream(t, func(c *net.TCPConn, _ int) {
		_ = c.SetDeadline(time.Now().Add(clientLimit))
		request, err := readCaseRequest(c)
		if err != nil {
			return
		}
		one := <-cases
		var sending sync.WaitGroup
		sending.Go(func() {
			sendAll(c, one.writes(rawSwitch(request), false)) // frames right behind the 101
			_ = c.CloseWrite()
		})
		frames, end := readFrames(c)
		sending.Wait()
		seen <- clientView{Frames: frames, End: end}
	})
	return base, func(c rawCase) { cases <- c }, seen
}

// TestAutobahnClients: raw frames to real clients.
func TestAutobahnClients(t *testing.T) {
	t.Parallel()
	limits := limitCases()
	for _, c := range []struct {
		name  string
		ask   func(t testing.TB, base string) (got []string, err error)
		limit rawCase
	}{{"gorilla", gorillaEchoes, limits[0]}, {"coder", coderEchoes, limits[2]}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, next, views := servingFrames(t)
			rig := startCaseRig(t, base, nil)
			for _, one := range append(autobahnCases(), c.limit) {
				view := func(base string) clientView {
					next(one)
					got, err := c.ask(t, base)
					v := <-views
					v.Got = got
					if err != nil {
						v.Error = withoutPort(err.Error())
					}
					return v
				}
				direct := view(base)
				if d := cmp.Diff(direct, view("http://"+rig.addr)); d != "" {
					t.Errorf("%s: a difference (-direct +relayed):\n%s", one.id, d)
				}
			}
		})
	}
}

// gorillaDial connects; the answer to the handshake has no body.
func gorillaDial(url string) (*gorilla.Conn, error) {
	c, res, err := gorilla.DefaultDialer.Dial(url, nil)
	closeBody(res)
	return c, err
}

func closeBody(res *http.Response) {
	if res != nil && res.Body != nil {
		_ = res.Body.Close()
	}
}

// gorillaEchoes sends every message back until the connection ends.
func gorillaEchoes(_ testing.TB, base string) (got []string, err error) {
	c, err := gorillaDial(wsURL(base) + "/")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(clientLimit))
	for {
		kind, data, err := c.ReadMessage()
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%d %d %.8s", kind, len(data), hashOf(string(data))))
		if err := c.WriteMessage(kind, data); err != nil {
			return got, err
		}
	}
}

// coderEchoes sends every message back until the connection ends.
func coderEchoes(t testing.TB, base string) (got []string, err error) {
	t.Helper()
	c, res, err := coder.Dial(t.Context(), wsURL(base)+"/", nil)
	if err != nil {
		return nil, err
	}
	closeBody(res)
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, data, err := c.Read(t.Context())
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%d %d %.8s", kind, len(data), hashOf(string(data))))
		if err := c.Write(t.Context(), kind, data); err != nil {
			return got, err
		}
	}
}

// TestAutobahnCompression: every window size and takeover, offered by two clients to
// a server that grants each.
func TestAutobahnCompression(t *testing.T) {
	t.Parallel()
	base := startNodeWS(t)
	var plan []wsStep
	bits := []any{nil, 9, 10, 11, 12, 13, 14, 15}
	for _, client := range bits {
		for _, server := range bits {
			for reset := range 4 {
				d := wsDeflate{client, server, reset&1 != 0, reset&2 != 0}
				plan = append(plan, wsStep{
					Name: fmt.Sprintf("%+v", d), Path: "/ws/echo", Deflate: d, Send: [][2]any{{"text", 30}, {"text", 40000}, {"binary", 40000}},
					Close: &wsClose{closeNormal, ""},
				})
			}
		}
	}
	inner := startOnlooker(t, base)
	rig := startCaseRig(t, "http://"+inner.addr, nil)
	outer := startOnlooker(t, "http://"+rig.addr)
	t.Run("clients", func(t *testing.T) {
		for _, c := range []struct {
			wsClient
			every int // offer of these
		}{{wsClients[0], 1}, {wsClients[2], 3}} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				var mine []wsStep
				for i := 0; i < len(plan); i += c.every {
					mine = append(mine, plan[i])
				}
				mine = keyed(mine, c.name)
				got, _ := wsTwoWays(t, base, "http://"+outer.addr, c.name, func(base string) []wsResult { return c.drive(t, base, mine) })
				agreed := map[string]bool{}
				for _, r := range got {
					if agreed[r.Extensions] = true; len(r.Got) != 3 || r.Error != "" {
						t.Errorf("%+v, want three echoes", r)
					}
				}
				if len(agreed) < len(mine)/3 {
					t.Errorf("%d different agreements for %d offers", len(agreed), len(mine))
				}
			})
		}
	})
	rig.stop()
	if d := cmp.Diff(outer.end(), inner.end()); d != "" {
		t.Errorf("what passed differs (-client's side +server's side):\n%s", d)
	}
}

// TestEarlyBytes: a client's frames right behind its handshake, ahead of the 101.
func TestEarlyBytes(t *testing.T) {
	t.Parallel()
	early := whole(opText, "early").bytes(true) + whole(opPing, "bird").bytes(true) + closing(closeOwn, "bye").bytes(true)
	t.Run("raw", func(t *testing.T) {
		t.Parallel()
		base := caseUpstream(t, func(c *net.TCPConn, _ int) { // answers when it has all of them
			head, err := readCaseRequest(c)
			got := make([]byte, len(early))
			if err == nil {
				_, err = io.ReadFull(c, got)
			}
			if string(got) != early || err != nil {
				t.Errorf("the server got %q, %v, want the early frames", got, err)
			}
			caseSend(t, c, rawSwitch(head)+string(got))
		})
		rig := startCaseRig(t, base, nil)
		if got := askRaw(t, "http://"+rig.addr, rawHandshake("/")+early); got != rawSwitch(rawHandshake("/"))+early {
			t.Errorf("the client got %q, want the 101 and its frames", got)
		}
	})
	for _, s := range []struct {
		name  string
		start func(t testing.TB) string
	}{
		// gorilla is not here: it refuses early bytes, where they came with the handshake's last ones;
		// nor is uvicorn, which forgets such bytes, without a relay too
		{"coder", startCoderWS},
		{"node", startNodeWS},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			base := s.start(t)
			rig := startCaseRig(t, base, nil)
			direct := withoutDate(askRaw(t, base, rawHandshake("/ws/echo?key=early")+early))
			relayed := withoutDate(askRaw(t, "http://"+rig.addr, rawHandshake("/ws/echo?key=early")+early))
			if direct != relayed {
				t.Errorf("the client got %q, without the relay %q", relayed, direct)
			}
			if !strings.HasPrefix(relayed, "HTTP/1.1 101 ") || !strings.Contains(relayed, "bye") {
				t.Errorf("the client got %q, want a 101 and a close", relayed)
			}
		})
	}
}

// TestC42CloseCodes: reserved codes, codes of nobody and damaged close frames pass
// both ways, and a connection that drops without one drops.
func TestC42CloseCodes(t *testing.T) {
	t.Parallel()
	for _, c := range closeCases() {
		last := c.frames[len(c.frames)-1]
		fromClient := make(chan string, 1)
		base := caseUpstream(t, func(conn *net.TCPConn, _ int) {
			head, _ := readCaseRequest(conn)
			caseSend(t, conn, rawSwitch(head)+last.bytes(false))
			b, err := io.ReadAll(conn)
			fromClient <- fmt.Sprintf("%q, then %s", b, howEnded(err))
		})
		rig := startCaseRig(t, base, nil)
		conn := rawDial(t, rig.addr, "/")
		got := make([]byte, len(last.bytes(false)))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != last.bytes(false) {
			t.Errorf("%s: the client got %q, %v, want %q", c.id, got, err, last.bytes(false))
		}
		caseSend(t, conn, last.bytes(true))
		_ = conn.CloseWrite()
		if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
			t.Errorf("%s: the client got %q, %v, want FIN", c.id, rest, err)
		}
		rig.stop()
		if got, want := <-fromClient, fmt.Sprintf("%q, then FIN", last.bytes(true)); got != want {
			t.Errorf("%s: the server got %s, want %s", c.id, got, want)
		}
	}
}

// TestC42Drops: an end without a close frame arrives as it was made, and with nothing
// in front.
func TestC42Drops(t *testing.T) {
	t.Parallel()
	hello := whole(opText, "hello")
	for _, reset := range []bool{false, true} {
		want := map[bool]string{false: "FIN", true: "RST"}[reset]
		drop := func(c *net.TCPConn) {
			if reset {
				_ = c.SetLinger(0)
			}
			_ = c.Close()
		}
		t.Run("server "+want, func(t *testing.T) {
			arrived := make(chan struct{})
			rig := startCaseRig(t, caseUpstream(t, func(c *net.TCPConn, _ int) {
				head, _ := readCaseRequest(c)
				caseSend(t, c, rawSwitch(head)+hello.bytes(false))
				<-arrived
				drop(c)
			}), nil)
			c := rawDial(t, rig.addr, "/")
			got := make([]byte, len(hello.bytes(false)))
			if _, err := io.ReadFull(c, got); err != nil {
				t.Error(err)
			}
			close(arrived)
			if rest, err := io.ReadAll(c); len(rest) > 0 || howEnded(err) != want {
				t.Errorf("the client got %q, %s, want %s alone", rest, howEnded(err), want)
			}
		})
		t.Run("client "+want, func(t *testing.T) {
			seen, arrived := make(chan string, 1), make(chan struct{})
			rig := startCaseRig(t, caseUpstream(t, func(c *net.TCPConn, _ int) {
				head, _ := readCaseRequest(c)
				caseSend(t, c, rawSwitch(head))
				_, _ = io.ReadFull(c, make([]byte, len(hello.bytes(true))))
				close(arrived)
				b, err := io.ReadAll(c)
				seen <- fmt.Sprintf("%q %s", b, howEnded(err))
			}), nil)
			c := rawDial(t, rig.addr, "/")
			caseSend(t, c, hello.bytes(true))
			<-arrived
			drop(c)
			if got := <-seen; got != `"" `+want {
				t.Errorf("the server got %s, want %s alone", got, want)
			}
		})
	}
}

// TestC44Fragments: a text of 10 MB in 200 fragments, a ping behind the 50th, which
// the far end answers.
func TestC44Fragments(t *testing.T) {
	t.Parallel()
	const size = 50 << 10
	text := strings.Repeat("a", 199*size-1) + "é" // its last character is cut in two
	frames := fragments(opText, text, size)
	if len(frames) != 200 {
		t.Fatalf("%d fragments", len(frames))
	}
	frames = slices.Insert(frames, 50, whole(opPing, "still there?"))
	base := startGorillaWS(t)
	rig := startCaseRig(t, base, nil)
	c := rawDial(t, rig.addr, "/ws/echo?key=c44")
	sendAll(c, rawCase{frames: frames[:51]}.writes("", true))
	pong := whole(opPong, "still there?").bytes(false)
	got := make([]byte, len(pong)) // it comes while the message is unfinished
	if _, err := io.ReadFull(c, got); err != nil || string(got) != pong {
		t.Errorf("behind the ping came %q, %v, want %q", got, err, pong)
	}
	sendAll(c, rawCase{frames: frames[51:]}.writes("", true))
	want := whole(opText, text).bytes(false)
	got = make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("the echo differs at %d, %v", differAt(string(got), want), err)
	}
	caseSend(t, c, closing(1000, "").bytes(true))
	if rest, err := io.ReadAll(c); string(rest) != closing(1000, "").bytes(false) || err != nil {
		t.Errorf("the close got %q, %v", rest, err)
	}
	// cut behind the 199th: no message, as without the relay
	cut := rawCase{"cut", 0, frames[:200]}
	if direct, relayed := askServer(t, base, cut), askServer(t, "http://"+rig.addr, cut); direct != relayed {
		t.Errorf("cut: the client got %s, without the relay %s", relayed, direct)
	}
}

// TestC45ServerPings: a ping behind 50 MB that the client has not read is answered by
// the client, once it comes to it; a client that is silent stays so.
func TestC45ServerPings(t *testing.T) {
	t.Parallel()
	const chunks = 50
	var written atomic.Int64
	pongs := make(chan string, 1)
	texts := make(chan string, 1)
	up := gorilla.Upgrader{}
	base := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		c.SetPongHandler(func(p string) error { pongs <- p; return nil })
		if r.URL.Path == "/queued" {
			chunk := []byte(wsBinary(1 << 20))
			for range chunks {
				for at := 0; at < len(chunk); at += 64 << 10 {
					_ = c.WriteMessage(gorilla.BinaryMessage, chunk[at:at+64<<10])
					written.Add(64 << 10)
				}
			}
		}
		_ = c.WriteControl(gorilla.PingMessage, []byte("ping 1"), time.Now().Add(clientLimit))
		_, text, err := c.ReadMessage()
		texts <- fmt.Sprintf("%s, %v", text, err)
	}))
	rig := startCaseRig(t, base, nil)
	t.Run("queued", func(t *testing.T) {
		c, err := gorillaDial("ws://" + rig.addr + "/queued")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		waitStill(t, &written) // the server is blocked: as slow as its client
		if n := written.Load(); n >= chunks<<20 {
			t.Errorf("the server has written all %d bytes to a client that reads nothing", n)
		}
		pinged := false
		c.SetPingHandler(func(p string) error {
			pinged = true
			return errors.Join(c.WriteControl(gorilla.PongMessage, []byte(p), time.Now().Add(clientLimit)), c.WriteMessage(gorilla.TextMessage, []byte("done")))
		})
		n := 0
		for {
			_, data, err := c.ReadMessage()
			if err != nil {
				break
			}
			n += len(data)
		}
		if n != chunks<<20 || !pinged {
			t.Errorf("the client got %d bytes, pinged %v, want %d and a ping", n, pinged, chunks<<20)
		}
		if got, text := <-pongs, <-texts; got != "ping 1" || text != "done, <nil>" {
			t.Errorf("the server got pong %q, text %s", got, text)
		}
	})
	t.Run("silent", func(t *testing.T) {
		c := rawDial(t, rig.addr, "/silent")
		ping := whole(opPing, "ping 1").bytes(false)
		got := make([]byte, len(ping))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != ping {
			t.Errorf("the client got %q, %v, want %q", got, err, ping)
		}
		caseSend(t, c, whole(opText, "no pong").bytes(true))
		if text := <-texts; text != "no pong, <nil>" {
			t.Errorf("the server got %s", text)
		}
		select {
		case p := <-pongs:
			t.Errorf("a pong %q came that the client had not sent", p)
		default:
		}
	})
}

// TestC47HalfClose: what a server sends behind its client's FIN arrives.
func TestC47HalfClose(t *testing.T) {
	t.Parallel()
	late := whole(opText, "LATE").bytes(false) + closing(1000, "").bytes(false)
	rig := startCaseRig(t, caseUpstream(t, func(c *net.TCPConn, _ int) {
		head, _ := readCaseRequest(c)
		caseSend(t, c, rawSwitch(head))
		_, _ = io.ReadAll(c)
		caseSend(t, c, late)
	}), nil)
	for range 100 {
		c := rawDial(t, rig.addr, "/")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != late || err != nil {
			t.Fatalf("the client got %q, %v, want the late frames and FIN", got, err)
		}
		_ = c.Close()
	}
}

// descriptors counts a process's open files.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestC47FullClose: clients that leave for good, by FIN or RST, while the server is
// silent (and ends with its client) or sends on: nothing is left over.
func TestC47FullClose(t *testing.T) {
	t.Parallel()
	const rounds = 300
	chunk := whole(opBinary, wsBinary(1000)).bytes(false)
	base := caseUpstream(t, func(c *net.TCPConn, _ int) {
		head, _ := readCaseRequest(c)
		caseSend(t, c, rawSwitch(head))
		if strings.HasPrefix(head, "GET /sends ") {
			for { // whatever the client does; ends when the relay lets go
				if _, err := io.WriteString(c, chunk); err != nil {
					return
				}
			}
		}
		_, _ = io.Copy(io.Discard, c) // silent; ends with its client
	})
	p := startServe(t, buildOmnitap(t), base)
	before := 0
	for round := range rounds {
		for _, path := range []string{"/silent", "/sends"} {
			c := rawDial(t, p.addr, path)
			if round%2 == 1 {
				_ = c.SetLinger(0)
			}
			_ = c.Close()
		}
		if round == 0 {
			waitCase(t, "the first sessions to end", func() bool { return openConnections(t, p) == 0 })
			before = descriptors(t, p.cmd.Process.Pid)
		}
	}
	waitCase(t, "all sessions to end", func() bool { return openConnections(t, p) == 0 })
	waitCase(t, "the descriptors to come back", func() bool { return descriptors(t, p.cmd.Process.Pid) <= before })
	p.stop(t)
}

func openConnections(t testing.TB, p *relayProcess) int {
	t.Helper()
	_, admin, _ := strings.Cut(p.output(), "admin on ")
	admin, _, ok := strings.Cut(admin, "\n")
	if !ok {
		return -1 // not printed yet
	}
	var health struct {
		Open int `json:"open_connections"`
	}
	getJSON(t, admin+"/healthz", &health)
	return health.Open
}

// TestC48TwoWriters: 1,000 messages and pings between them, written by two, clients
// that leave at random, and a relay whose time is up amid them.
func TestC48TwoWriters(t *testing.T) {
	t.Parallel()
	const messages = 1000
	up := gorilla.Upgrader{}
	base := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		if strings.HasPrefix(r.URL.Path, "/ws/echo") {
			for {
				kind, data, err := c.ReadMessage()
				if err != nil || c.WriteMessage(kind, data) != nil {
					return
				}
			}
		}
		var writers sync.WaitGroup
		writers.Go(func() {
			for i := range messages {
				if c.WriteMessage(gorilla.TextMessage, fmt.Appendf(nil, "message %d", i)) != nil {
					return
				}
			}
		})
		writers.Go(func() {
			for i := range messages {
				if c.WriteControl(gorilla.PingMessage, fmt.Append(nil, i), time.Now().Add(clientLimit)) != nil {
					return
				}
			}
		})
		for err == nil { // the pongs
			_, _, err = c.ReadMessage()
		}
		_ = c.NetConn().Close()
		writers.Wait()
	}))
	rig := startCaseRig(t, base, func(c *proxy.Config, _ *tap.Config) { c.Drain = time.Nanosecond })
	other := startBystander(t, "http://"+rig.addr)
	random := rand.New(rand.NewPCG(48, 0))
	var clients sync.WaitGroup
	full := make(chan struct{}, 4) // so many at once
	rounds := 200
	for round := range rounds {
		leaveAt, how := random.IntN(messages), random.IntN(3)
		full <- struct{}{}
		clients.Go(func() {
			defer func() { <-full }()
			twoWritersRound(t, rig.addr, leaveAt, how)
		})
		if round%10 == 0 {
			other.check(t, "amid others")
		}
		if round == rounds-4 {
			rig.stop() // its time is up now: every session ends
			break
		}
	}
	clients.Wait()
}

// twoWritersRound reads messages in order up to one, then leaves; it may end before
// where the relay ends.
func twoWritersRound(t testing.TB, addr string, leaveAt, how int) {
	t.Helper()
	c, err := gorillaDial("ws://" + addr + "/down")
	if err != nil {
		return // the relay has ended
	}
	defer c.Close()
	for i := range leaveAt {
		_, got, err := c.ReadMessage()
		var damage *gorilla.CloseError
		if err != nil {
			if errors.As(err, &damage) && damage.Code != gorilla.CloseAbnormalClosure || strings.Contains(err.Error(), "websocket: bad") {
				t.Errorf("message %d: %v", i, err)
			}
			return
		}
		if want := fmt.Sprintf("message %d", i); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
			return
		}
	}
	switch how {
	case 0:
		_ = c.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(closeOwn, "bye"), time.Now().Add(clientLimit))
	case 1:
		_ = c.NetConn().(*net.TCPConn).SetLinger(0)
	}
}
