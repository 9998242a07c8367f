package foreign

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"
)

func TestParseCPUs(t *testing.T) {
	in := "cpu  36656 0 10873 34792 400 7 96 19 0 0\n" +
		"cpu0 17389 0 5178 18767 36 3 19 9 0 0\n" +
		"cpu10 1 2 3 4 5 6 7 8 9 10\n" +
		"cpu2 1 2 3 4\n" +
		"intr 1365835 0 0\ncpu7 1 2 3 4 5 6 7 8\n"
	all, cpus, online, err := parseCPUs([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]cpuTimes{0: {18767, 36, 3, 19, 9}, 10: {4, 5, 6, 7, 8}, 2: {idle: 4}}
	if diff := cmp.Diff(want, cpus, cmp.AllowUnexported(cpuTimes{})); diff != "" {
		t.Error(diff)
	}
	if all != (cpuTimes{34792, 400, 7, 96, 19}) || online.String() != "0,2,10" {
		t.Errorf("all %+v, online %s", all, online)
	}
	for _, in := range []string{
		"", "intr 1\n", "cpu  1 2 3 4\n", "cpu0 1 2 3 4\n", "cpu  1 2 3\ncpu0 1 2 3 4\n", "cpu  1 2 3 x\ncpu0 1 2 3 4\n",
		"cpu  1 2 3 4\ncpux 1 2 3 4\n", "cpu  1 2 3 4\ncpu0 1 2 3 -4\n", "cpu  1 2 3 99999999999999999999\ncpu0 1 2 3 4\n",
	} {
		if all, _, online, err := parseCPUs([]byte(in)); err == nil {
			t.Errorf("parseCPUs(%q) = %+v, %s", in, all, online)
		}
	}
}

func TestParseStat(t *testing.T) {
	rest := " S 12 34 34 0 -1 4194560 1 0 0 0 100 20 3000 400 20 0 7 0 987654 1 1\n"
	for _, comm := range []string{"python3", "a) R 1 (b", "x\ny", "", "))(("} {
		got, err := parseStat([]byte("77 (" + comm + ")" + rest))
		if want := (stat{ppid: 12, start: 987654, own: 120, reaped: 3400}); err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v", comm, got, err)
		}
	}
	for _, in := range []string{
		"", "1 (a", "1 (a)", "1 (a) S 1", "1 (a) S x" + strings.Repeat(" 1", 20), "1 (a) S 1" + strings.Repeat(" x", 20),
		"1 (a) S -1" + strings.Repeat(" 1", 20), "1 (a) S 99999999999" + strings.Repeat(" 1", 20),
	} {
		if got, err := parseStat([]byte(in)); err == nil {
			t.Errorf("parseStat(%q) = %+v", in, got)
		}
	}
}

func TestParseAllowed(t *testing.T) {
	got, err := parseAllowed([]byte("Name:\tCpus_allowed_list:\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,7\nMems_allowed_list:\t0\n"))
	if err != nil || got.String() != "0-2,7" {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range []string{"", "Cpus_allowed:\tff\n", "Cpus_allowed_list:\tx\n"} {
		if got, err := parseAllowed([]byte(in)); err == nil {
			t.Errorf("parseAllowed(%q) = %v", in, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n"))
	f.Add([]byte("1 (a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"))
	f.Add([]byte("Cpus_allowed_list:\t0-8191\n"))
	f.Add([]byte("22 27 0:21 / /proc/stat rw - fuse.lxcfs lxcfs rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, cpus, online, err := parseCPUs(b); err == nil && (len(cpus) != len(online) || len(online) == 0) {
			t.Errorf("%d CPUs, online %v", len(cpus), online)
		}
		if s, err := parseStat(b); err == nil && s.ppid < 0 {
			t.Errorf("%+v", s)
		}
		if cpus, err := parseAllowed(b); err == nil {
			if again, err := host.ParseCPUs(cpus.String()); err != nil || cmp.Diff(cpus, again) != "" {
				t.Errorf("%v comes back as %v, %v", cpus, again, err)
			}
		}
		covered(b)
	})
}
