package find

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	rest := " S 12 34 34 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 7 0 987654 1 1"
	for _, comm := range []string{"python3", "a) R 1 (b", "x\ny", "", "))(("} {
		got, err := parseStat([]byte("77 (" + comm + ")" + rest))
		want := identity{ppid: 12, start: 987654, comm: comm}
		if err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v", comm, got, err)
		}
	}
	if got, err := parseStat([]byte("77 (a)" + strings.Replace(rest, " S ", " Z ", 1))); err != nil || !got.gone {
		t.Errorf("a zombie: %+v, %v", got, err)
	}
	for _, in := range []string{"", "1 (a", ") 1 (", "1 (a) S 1", "1 (a) S x" + strings.Repeat(" 1", 20), "1 (a) S 1" + strings.Repeat(" x", 20)} {
		if got, err := parseStat([]byte(in)); err == nil {
			t.Errorf("parseStat(%q) = %+v", in, got)
		}
	}
}

func TestSplitArgs(t *testing.T) {
	for in, want := range map[string][]string{
		"a\x00b c\x00\x00d\x00":            {"a", "b c", "", "d"},
		"VLLM::Worker\x00\x00\x00\x00\x00": {"VLLM::Worker"},
		"":                                 nil, "\x00": nil,
	} {
		if diff := cmp.Diff(want, splitArgs([]byte(in))); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
}

func TestParseEnviron(t *testing.T) {
	in := strings.Repeat("\x00", 1500) + "VLLM_LOGGING_PREFIX=[Stage-1] =x\x00PATH=/bin\x00A\x00A=" + strings.Repeat("y", 5000) + "\x00"
	got := parseEnviron([]byte(in), map[string]bool{envLoggingPrefix: true, "A": true})
	want := map[string]string{envLoggingPrefix: "[Stage-1] =x", "A": strings.Repeat("y", maxEnvLen)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Lines as the real server's /proc/PID/maps had them.
func TestParseMaps(t *testing.T) {
	in := `55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 18500                      /opt/python/bin/python3.11
55d0c0a01000-55d0c0a02000 r-xp 00001000 fe:00 18500                      /opt/python/bin/python3.11
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000001000-7f0000002000 r-xp 00000000 00:00 0                          [vdso]
7f0000002000-7f0000003000 r-xp 00004000 fe:00 791234                     /venv/lib/site packages/pyzmq.libs/libzmq-c0d5e7b9.so.5.2.5 (deleted)
7f0000003000-7f0000004000 r-xp 00008000 fe:00 791234                     /venv/lib/site packages/pyzmq.libs/libzmq-c0d5e7b9.so.5.2.5 (deleted)
7f0000004000-7f0000005000 rw-s 00000000 00:16 6125                       /dev/shm/psm_00012e59
7f0000005000-7f0000006000 r-xp 00000000 fe:00 791234x /x
nonsense
`
	want := []Lib{
		{Path: "/opt/python/bin/python3.11", Dev: "fe:00", Inode: 18500},
		{Path: "/venv/lib/site packages/pyzmq.libs/libzmq-c0d5e7b9.so.5.2.5", Dev: "fe:00", Inode: 791234, Deleted: true},
	}
	got := parseMaps([]byte(in))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := (Snapshot{Libs: got}); !s.mapsZMQ() {
		t.Error("libzmq is not seen")
	}
}

func TestParseUnix(t *testing.T) {
	in := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 208353 /tmp/a b/stage_x.sock\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01   77 @abstract\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 208364 /tmp/connected\n" +
		"0000000000000000: 00000003 00000000 00010000 0001 01 5\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 9 /tmp/bro\nken\n"
	got := map[uint64]string{}
	parseUnix([]byte(in), got)
	want := map[uint64]string{208353: "/tmp/a b/stage_x.sock", 77: "@abstract", 9: "/tmp/bro"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseTCP(t *testing.T) {
	got := map[uint64]Address{}
	parseTCP([]byte("  sl  local_address rem_address   st ...\n"+
		"   0: 0100007F:6DBB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"+
		"   1: 0100007F:6DBB 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n"+
		"   2: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 4713 1\n"+
		"   3: 0000000000000000FFFF00000100007F:1F91 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 4714 1\n"+
		"   4: 01:1 0:0 0A 0:0 0:0 0 0 0 4715 1\n"), got)
	want := map[uint64]Address{4711: {"127.0.0.1", 28091}, 4713: {"::1", 8080}, 4714: {"127.0.0.1", 8081}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A file is looked for as the process sees it, and never outside of its root.
func TestWithin(t *testing.T) {
	dir := t.TempDir()
	root, outside := filepath.Join(dir, "container"), filepath.Join(dir, "secret")
	proc := procfs(filepath.Join(dir, "proc"))
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "secret")
	write(filepath.Join(root, "app", "deploy.yaml"), "stages: []")
	write(filepath.Join(root, "app", "long"), strings.Repeat("x", 200))
	link("deploy.yaml", filepath.Join(root, "app", "inside"))
	link("../../secret", filepath.Join(root, "app", "up"))
	link(outside, filepath.Join(root, "app", "absolute"))
	if err := syscall.Mkfifo(filepath.Join(root, "app", "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(proc.path(5), 0o755); err != nil {
		t.Fatal(err)
	}
	link(root, proc.path(5, "root"))
	link("/app", proc.path(5, "cwd"))
	for name, want := range map[string]string{
		"deploy.yaml": "stages: []", "/app/deploy.yaml": "stages: []", "../app/inside": "stages: []",
		"up": "", "absolute": "", "/app/../../secret": "", "fifo": "", "long": "", "none": "", "": "",
	} {
		b, err := proc.within(5, name, 100)
		if string(b) != want || (err != nil) != (want == "") {
			t.Errorf("within(%q) = %q, %v", name, b, err)
		}
	}
	if _, err := proc.within(6, "deploy.yaml", 100); err == nil {
		t.Error("a process that is gone was read")
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("1 (a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"), "socket:[7]")
	f.Add([]byte("7f0-7f1 r-xp 0 fe:00 7 /a (deleted)\n"), "pipe:[18446744073709551616]")
	f.Add([]byte("0: 2 0 00010000 0001 01 208353 /tmp/x\n"), "/dev/shm/omni_shm_wake_1/0_")
	f.Add([]byte("0: 0100007F:6DBB 0:0 0A 0 0 0 0 0 4711\n"), "")
	f.Fuzz(func(t *testing.T, b []byte, link string) {
		_, _ = parseStat(b)
		for _, l := range parseMaps(b) {
			if l.Inode == 0 || !strings.HasPrefix(l.Path, "/") {
				t.Errorf("%+v", l)
			}
		}
		unixes, tcps := map[uint64]string{}, map[uint64]Address{}
		parseUnix(b, unixes)
		parseTCP(b, tcps)
		for _, a := range tcps {
			if a.Port < 0 || a.Port > 65535 || a.Host == "" {
				t.Errorf("%+v", a)
			}
		}
		var l links
		l.add(link, map[uint64]bool{})
		parseEnviron(b, map[string]bool{"A": true})
		splitArgs(b)
		for _, s := range []string{string(b), link} {
			if n, ok := parseStageTitle(s); ok && (n.replica < 0 || n.dp < 0) {
				t.Errorf("%q: %+v", s, n)
			}
			_, _ = parseWorkerTitle(s)
			_, _ = readSockets([]string{s})
			_ = fifoStage([]string{s})
			_, _ = parseCommand(strings.Split(s, "\x00"))
			_ = printable(strings.Split(s, "\x00"))
			_ = fmt.Sprint(ModelStages(s))
		}
	})
}
