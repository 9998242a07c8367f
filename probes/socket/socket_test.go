//go:build linux && amd64

package socket_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/socket"
)

func TestMain(m *testing.M) {
	live.Main(m, map[string]live.Act{"send": send, "recv": recv, "endpoint": endpoint})
}

// content is what messages of a size carry.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*11 + i>>8)
	}
	return b
}

// send writes messages to descriptor 3: CALL SIZE, or CALL SIZE+SIZE+… in parts.
func send(args []string) (string, error) {
	for ; len(args) > 0; args = args[2:] {
		parts := split(args[1])
		var err error
		switch args[0] {
		case "write":
			_, err = unix.Write(3, parts[0])
		case "sendto":
			err = unix.Sendto(3, parts[0], 0, nil)
		case "sendmsg":
			_, err = unix.SendmsgBuffers(3, parts, nil, nil, 0)
		case "writev":
			_, err = unix.Writev(3, parts)
		}
		if err != nil {
			return "", err
		}
	}
	return "sent", nil
}

// split cuts one content into parts of the sizes.
func split(sizes string) (parts [][]byte) {
	total := 0
	var ns []int
	for s := range strings.SplitSeq(sizes, "+") {
		n, _ := strconv.Atoi(s)
		ns = append(ns, n)
		total += n
	}
	all := content(total)
	for _, n := range ns {
		parts = append(parts, all[:n:n])
		all = all[n:]
	}
	return parts
}

// recv reads messages of the sizes from descriptor 3, each with its call, whole.
func recv(args []string) (string, error) {
	for ; len(args) > 0; args = args[2:] {
		parts := split(args[1])
		n, want := 0, 0
		for _, p := range parts {
			want += len(p)
			clear(p)
		}
		var err error
		switch args[0] {
		case "read":
			n, err = unix.Read(3, parts[0])
		case "recvfrom":
			n, _, err = unix.Recvfrom(3, parts[0], unix.MSG_WAITALL)
		case "recvmsg":
			n, _, _, _, err = unix.RecvmsgBuffers(3, parts, nil, unix.MSG_WAITALL)
		case "readv":
			n, err = unix.Readv(3, parts)
		}
		if err != nil || n != want {
			return "", fmt.Errorf("%s: %d of %d bytes: %w", args[0], n, want, err)
		}
		if !bytes.Equal(bytes.Join(parts, nil), content(want)) {
			return "", fmt.Errorf("%s of %d bytes: others than were sent", args[0], want)
		}
	}
	return "read", nil
}

func load(t *testing.T, c socket.Config) (*kernel.Watch, *kernel.Family) {
	t.Helper()
	w := live.NewWatch(t)
	f, err := socket.Load(w, c)
	return w, live.Family(t, f, err)
}

// ends makes two processes with a stream socket between them.
func ends(t *testing.T, w *kernel.Watch, domain int) (a, b *live.Process) {
	t.Helper()
	fds, err := unix.Socketpair(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	one, two := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	defer one.Close()
	defer two.Close()
	a, b = live.Start(t, "send", one), live.Start(t, "recv", two)
	live.Add(t, w, a)
	live.Add(t, w, b)
	return a, b
}

// TestStream sends and receives by every call, of sizes around every bound, and wants
// head and tail of each.
func TestStream(t *testing.T) {
	w, f := load(t, socket.Config{ZMTP: true})
	a, b := ends(t, w, unix.AF_UNIX)
	sizes := []int{1, 9, 63, 64, 65, 1023, 1024, 1025, 8192, 8193, 40000}
	calls := [][2]string{{"write", "read"}, {"sendto", "recvfrom"}, {"sendmsg", "recvmsg"}, {"writev", "readv"}}
	for _, c := range calls {
		for _, n := range sizes {
			b.Tell(c[1], strconv.Itoa(n))
			a.Do(c[0], strconv.Itoa(n))
			b.Answer()
			events := live.Drain(t, f)
			check(t, live.Of(events, a.Pid, event.Send), c[0], content(n), n)
			check(t, live.Of(events, b.Pid, event.Recv), c[1], content(n), n)
		}
	}
	if c := live.Counts(t, f); c.Lost+c.Skipped != 0 {
		t.Errorf("lost events: %+v", c)
	}
}

func check(t *testing.T, events []event.Event, call string, want []byte, asked int) {
	t.Helper()
	if len(events) != 1 {
		t.Errorf("%s of %d bytes: %d events", call, len(want), len(events))
		return
	}
	e := events[0]
	head, tail := want, []byte(nil)
	if len(want) > 8192 {
		head, tail = want[:8192], want[len(want)-64:]
	}
	if e.Call != call || e.Ret != int64(len(want)) || e.Size != int64(asked) || e.FD != 3 || e.EnterNS == 0 || e.EnterNS > e.MonoNS {
		t.Errorf("%s of %d bytes: %s returned %d of %d on %d", call, len(want), e.Call, e.Ret, e.Size, e.FD)
	}
	if !bytes.Equal(e.Head, head) || !bytes.Equal(e.Tail, tail) {
		t.Errorf("%s of %d bytes: head %d, equal %t; tail %d, equal %t", call, len(want),
			len(e.Head), bytes.Equal(e.Head, head), len(e.Tail), bytes.Equal(e.Tail, tail))
	}
}

// TestParts: a scattered call's bytes are put together as far as its parts were copied
// whole.
func TestParts(t *testing.T) {
	w, f := load(t, socket.Config{ZMTP: true})
	a, b := ends(t, w, unix.AF_UNIX)
	for _, tt := range []struct {
		sizes      string
		head, tail int
	}{
		{"2+9+300", 311, 0},
		{"9+4096", 4105, 0},
		{"9+0+3+0", 12, 0},
		{"4096+4096", 8192, 0},
		{"9+20000", 9 + 4096, 64},
		{"9+4096+20000", 9 + 4096, 64},
		{"9+20000+3", 9 + 4096, 0},
		{"1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1", 16, 0},
	} {
		for _, c := range [][2]string{{"sendmsg", "recvmsg"}, {"writev", "readv"}} {
			b.Tell(c[1], tt.sizes)
			a.Do(c[0], tt.sizes)
			b.Answer()
			var all []byte
			for _, p := range split(tt.sizes) {
				all = append(all, p...)
			}
			events := live.Drain(t, f)
			for _, e := range append(live.Of(events, a.Pid, event.Send), live.Of(events, b.Pid, event.Recv)...) {
				if e.Ret != int64(len(all)) || !bytes.Equal(e.Head, all[:tt.head]) || !bytes.Equal(e.Tail, all[len(all)-tt.tail:]) {
					t.Errorf("%s of %s: returned %d, head %d, tail %d", e.Call, tt.sizes, e.Ret, len(e.Head), len(e.Tail))
				}
			}
			if n := len(live.Of(events, a.Pid, event.Send)) + len(live.Of(events, b.Pid, event.Recv)); n != 2 {
				t.Errorf("%v of %s: %d events", c, tt.sizes, n)
			}
		}
	}
}

// tcpPair is two processes with a TCP connection between them.
func tcpPair(t *testing.T, w *kernel.Watch, host string) (a, b *live.Process) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer s.Close()
	cf, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	sf, err := s.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer cf.Close()
	defer sf.Close()
	// net's descriptors do not block; these are read by calls that wait
	for _, f := range []*os.File{cf, sf} {
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			t.Fatal(err)
		}
	}
	a, b = live.Start(t, "send", cf), live.Start(t, "recv", sf)
	live.Add(t, w, a)
	live.Add(t, w, b)
	return a, b
}

// TestMooncake: of a transfer by Mooncake's TCP transport its header and its
// acknowledgement are told, and nothing of the data; over IPv4 and IPv6.
func TestMooncake(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		w, f := load(t, socket.Config{Mooncake: true})
		a, b := tcpPair(t, w, host)
		b.Tell("recvfrom", "24", "recvfrom", "65536", "recvfrom", "65536", "recvfrom", "4464", "recvfrom", "8")
		a.Do("sendto", "24", "sendto", "65536", "sendto", "65536", "sendto", "4464", "sendto", "8")
		b.Answer()
		events := live.Drain(t, f)
		for _, p := range []*live.Process{a, b} {
			got := live.Of(events, p.Pid, event.Send, event.Recv)
			if len(got) != 2 || !bytes.Equal(got[0].Head, content(24)) || !bytes.Equal(got[1].Head, content(8)) {
				t.Errorf("%s: told %+v", host, got)
			}
		}
		x, y := ends(t, w, unix.AF_UNIX)
		y.Tell("read", "24")
		x.Do("write", "24")
		y.Answer()
		if got := live.Of(live.Drain(t, f), x.Pid, event.Send); len(got) > 0 {
			t.Errorf("a Unix socket is not Mooncake's: %+v", got)
		}
	}
}

// endpoint makes connections: it listens, connects to itself and accepts.
func endpoint(args []string) (string, error) {
	l, err := net.Listen(args[0], args[1])
	if err != nil {
		return "", err
	}
	defer l.Close()
	c, err := net.Dial(args[0], l.Addr().String())
	if err != nil {
		return "", err
	}
	s, err := l.Accept()
	if err != nil {
		return "", err
	}
	s.Close()
	defer c.Close()
	return l.Addr().String() + " " + c.LocalAddr().String(), nil
}

func TestAddresses(t *testing.T) {
	w, f := load(t, socket.Config{})
	p := live.Start(t, "endpoint")
	p.Do("tcp4", "127.0.0.1:0") // the first time Go tries out what sockets there are
	live.Add(t, w, p)
	if err := w.AddSelf(); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/stage_thinker.sock"
	for _, tt := range []struct{ network, listen, bind string }{
		{"unix", path, "unix:" + path},
		{"unix", "@omt-abstract", "unix:@omt-abstract"},
		{"tcp4", "127.0.0.1:0", "127.0.0.1:0"},
		{"tcp6", "[::1]:0", "[::1]:0"},
	} {
		var at, local string
		fmt.Sscan(p.Do(tt.network, tt.listen), &at, &local)
		connect, accept := "unix:"+at, "unix:"
		if tt.network != "unix" {
			connect, accept = at, local
		}
		var got []string
		events := live.Drain(t, f)
		for _, e := range live.Of(events, p.Pid, event.Bind, event.Connect, event.Accept) {
			got = append(got, fmt.Sprintf("%v %s", e.Probe, e.Path))
		}
		want := []string{"bind " + tt.bind, "connect " + connect, "accept " + accept}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.network, tt.listen, diff)
		}
		if n := len(live.Of(events, p.Pid, event.Close)); n != 3 {
			t.Errorf("%s: %d closes of 3 sockets", tt.network, n)
		}
		states(t, live.Of(events, p.Pid, event.SockState), tt.network, at, local)
	}
	// omnitap's own connections are not told
	for range 3 {
		c, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		c.Close()
	}
	if got := live.Of(live.Drain(t, f), os.Getpid()); len(got) > 0 {
		t.Errorf("omnitap's own: %+v", got)
	}
}

// states wants the client's way to an established connection and its end, with both
// addresses.
func states(t *testing.T, events []event.Event, network, at, local string) {
	t.Helper()
	if network == "unix" {
		if len(events) > 0 {
			t.Errorf("a Unix socket has no TCP states: %+v", events)
		}
		return
	}
	host, port, _ := net.SplitHostPort(at)
	_, from, _ := net.SplitHostPort(local)
	established := false
	for _, e := range events {
		to, _ := strconv.ParseInt(port, 10, 64)
		source, _ := strconv.ParseInt(from, 10, 64)
		if e.Path == host+" "+host && e.Args == [5]int64{2, 1, source, to} { // SYN_SENT to ESTABLISHED
			established = true
		}
	}
	if !established {
		t.Errorf("%s: no connection from %s to %s was established: %+v", network, local, at, events)
	}
}
