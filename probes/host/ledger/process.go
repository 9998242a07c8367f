package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/jail"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Process is one process of the server. Nil is not measured; Unmeasured has the reason.
type Process struct {
	PID   int    `json:"pid"`
	Role  string `json:"role"`
	Stage string `json:"stage"`
	PPID  *int   `json:"ppid"`
	// StartTicks is the start in clock ticks since boot.
	StartTicks *uint64 `json:"start_ticks"`
	Comm       *string `json:"comm"`
	Exe        *string `json:"exe"`
	// CommandLine is redacted. A process that set a title shows that.
	CommandLine []string `json:"command_line"`
	// Environment is the environment at exec, as far as it matters, redacted. A process
	// that set a title may have written over it.
	Environment map[string]string `json:"environment"`
	Threads     *int              `json:"threads"`
	Nice        *int              `json:"nice"`
	// CPUsAllowed and MemsAllowed are where the main thread may run and allocate.
	CPUsAllowed *string `json:"cpus_allowed"`
	MemsAllowed *string `json:"mems_allowed"`
	Cgroup      *Cgroup `json:"cgroup"`
	// Container is nil where the process is in none that can be told.
	Container  *Container        `json:"container"`
	Unmeasured map[string]string `json:"unmeasured"`
}

// Bounds of what is read of one process.
const (
	maxStat    = 4 << 10
	maxStatus  = 64 << 10
	maxCommand = 1 << 20
	maxEnviron = 4 << 20
	maxArgs    = 512
	maxArg     = 4 << 10
)

// process reads one process, and puts down what it uses.
func (r *reader) process(t Target, models *modelList) Process {
	n := null.Reasons{}
	p := Process{PID: t.PID, Role: t.Role, Stage: t.Stage, Unmeasured: n}
	err := r.identity(&p, n)
	if err == nil && t.StartTicks != 0 && t.StartTicks != *p.StartTicks {
		err = errors.New("it has ended, and another process has its number")
	}
	if err != nil {
		for _, name := range processFields {
			n[name] = host.Reason(err)
		}
		r.soft.blind(t.PID, err)
		return Process{PID: t.PID, Role: t.Role, Stage: t.Stage, Unmeasured: n}
	}
	r.status(&p, n)
	exe, err := os.Readlink(r.Root.Path(proc(t.PID, "exe")))
	exe, _ = strings.CutSuffix(exe, " (deleted)")
	p.Exe = null.Value(n, "exe", null.Text(exe), err)
	args, argsErr := r.args(t.PID)
	env, envErr := r.environ(t.PID)
	r.told(&p, n, args, env, argsErr, envErr)
	p.Cgroup = r.cgroup(t.PID, n)
	p.Container = r.container(t.PID, env, n)

	inside, err := jail.Open(r.Root, t.PID)
	if err != nil {
		n["files"] = host.Reason(err)
		r.soft.blind(t.PID, err)
	} else {
		defer inside.Close()
	}
	files, err := r.mapped(t.PID)
	if err != nil {
		n["mappings"] = host.Reason(err)
		r.soft.blind(t.PID, err)
	}
	s := subject{pid: t.PID, jail: inside, exe: exe, args: args, env: env, files: files, start: r.startWall(&p)}
	if inside != nil {
		r.packages(&s)
	}
	r.libraries(&s)
	r.python(&s)
	models.add(r, &s)
	return p
}

// processFields are all that is null of a process that is gone.
var processFields = []string{
	"ppid", "start_ticks", "comm", "exe", "command_line", "environment", "threads", "nice", "cpus_allowed",
	"mems_allowed", "cgroup", "container", "files", "mappings",
}

// subject is a process while it is read.
type subject struct {
	pid   int
	jail  *jail.Jail // nil where its files cannot be opened
	exe   string
	args  []string
	env   map[string]string
	files []mapped
	// start is when it was started on the wall clock, seconds; 0 is unknown.
	start int64
	sites []*site
}

func proc(pid int, name string) string { return "proc/" + strconv.Itoa(pid) + "/" + name }

func (r *reader) identity(p *Process, n null.Reasons) error {
	b, err := r.Root.Read(proc(p.PID, "stat"), maxStat)
	if err != nil {
		return err
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return errors.New("stat has no name")
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return errors.New("stat is short")
	}
	comm := null.Text(string(b[open+1 : end]))
	p.Comm = &comm
	number := func(name string, i int) *int {
		v, err := strconv.Atoi(fields[i])
		return null.Value(n, name, v, err)
	}
	p.PPID, p.Nice, p.Threads = number("ppid", 1), number("nice", 16), number("threads", 17)
	start, err := strconv.ParseUint(fields[19], 10, 64)
	p.StartTicks = &start
	return err
}

// startWall is when a process was started, seconds on the wall clock.
func (r *reader) startWall(p *Process) int64 {
	now := r.Clocks.Reading()
	boot := (now.WallNS - now.MonoNS - now.SleptNS) / 1e9
	return boot + int64(*p.StartTicks/100)
}

func (r *reader) status(p *Process, n null.Reasons) {
	b, err := r.Root.Read(proc(p.PID, "status"), maxStatus)
	field := func(name string) (string, error) {
		for line := range bytes.Lines(b) {
			if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
				return null.Text(strings.TrimSpace(string(rest))), err
			}
		}
		if err == nil {
			return "", errors.New("the kernel does not say")
		}
		return "", err
	}
	cpus, cpuErr := field("Cpus_allowed_list")
	p.CPUsAllowed = null.Value(n, "cpus_allowed", cpus, cpuErr)
	mems, memErr := field("Mems_allowed_list")
	p.MemsAllowed = null.Value(n, "mems_allowed", mems, memErr)
}

// args reads the command line. A title leaves zeros behind it.
func (r *reader) args(pid int) ([]string, error) {
	b, err := r.Root.Read(proc(pid, "cmdline"), maxCommand)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil, errors.New("it is empty: a kernel thread, or a process that has ended")
	}
	return strings.Split(string(b), "\x00"), nil
}

// told puts down what others may have written secrets into.
func (r *reader) told(p *Process, n null.Reasons, args []string, env map[string]string, argsErr, envErr error) {
	if r.Redact == nil {
		n["command_line"], n["environment"] = errNoRedact.Error(), errNoRedact.Error()
		return
	}
	if argsErr == nil {
		p.CommandLine, argsErr = r.redacted(shorten(args))
	}
	if argsErr != nil {
		n["command_line"] = host.Reason(argsErr)
	}
	if envErr == nil {
		p.Environment, envErr = r.matters(env)
	}
	if envErr != nil {
		n["environment"] = host.Reason(envErr)
	}
}

var errNoRedact = errors.New("it is left out: nothing was given to take the secrets out of it")

// redacted hides secrets, and makes the rest fit to be shown.
func (r *reader) redacted(words []string) ([]string, error) {
	out := r.Redact(words)
	if len(out) != len(words) {
		return nil, fmt.Errorf("it is left out: of %d words %d came back without secrets", len(words), len(out))
	}
	for i := range out {
		out[i] = strings.ToValidUTF8(out[i], "\ufffd")
	}
	return out, nil
}

// shorten bounds a command line.
func shorten(args []string) []string {
	out := make([]string, 0, min(len(args), maxArgs+1))
	for i, a := range args {
		if i == maxArgs {
			return append(out, fmt.Sprintf("… (%d more)", len(args)-i))
		}
		out = append(out, cut(a, maxArg))
	}
	return out
}

// cut bounds a word, and says so.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + fmt.Sprintf("… (%d bytes more)", len(s)-limit)
}

func (r *reader) mapped(pid int) ([]mapped, error) {
	b, err := r.Root.Read(proc(pid, "maps"), maxMaps)
	if err != nil {
		return nil, err
	}
	return parseMaps(b), nil
}

// inside is a name as the process sees it: absolute, relative ones below its working
// directory.
func (r *reader) inside(s *subject, name string) (string, error) {
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	cwd, err := os.Readlink(r.Root.Path(proc(s.pid, "cwd")))
	if err != nil {
		return "", err
	}
	return s.jail.Name(path.Join(cwd, name)), nil
}
