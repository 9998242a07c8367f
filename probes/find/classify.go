package find

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/probes/event"
)

// Found is what Classify says.
type Found struct {
	// Processes are sorted by server, role, stage, replica, rank and pid. A process is
	// in it once.
	Processes []event.Process
	// Doubts are what looked like a part of a server and was not taken.
	Doubts []Doubt
}

// Doubt is a process that was not taken, and why.
type Doubt struct {
	PID int
	// Title is its own word for itself: print it quoted.
	Title  string
	Reason string
}

// mark is what one process is taken for.
type mark struct {
	s            *Snapshot
	server, role string
	id           *int
	// stages are names that the process itself gives; rule those of the rule's file.
	stages        []string
	rule          map[int]string
	replica, rank int
	why           []string
	// proven marks need no server above them and no libzmq.
	proven bool
	// socketDir joins an SGLang-Omni stage with its server.
	socketDir string
	root      int
}

// classifier holds one run of Classify.
type classifier struct {
	byPID  map[int]*Snapshot
	order  []*Snapshot
	marks  map[int]*mark
	doubts []Doubt
}

// Classify says which processes are servers, stages and workers. The snapshots need
// to hold the ancestors of what they hold, as far as they matter; a later snapshot of
// the same pid replaces an earlier one. It keeps nothing of them.
func Classify(snapshots []Snapshot, rules []Rule, names Namer) Found {
	c := &classifier{byPID: map[int]*Snapshot{}, marks: map[int]*mark{}}
	for i := range snapshots {
		c.byPID[snapshots[i].PID] = &snapshots[i]
	}
	for _, s := range c.byPID {
		c.order = append(c.order, s)
	}
	slices.SortFunc(c.order, func(a, b *Snapshot) int { return a.PID - b.PID })
	for _, s := range c.order {
		c.mark(s, rules)
	}
	c.resolveCommands()
	c.markPorts()
	c.inheritEnvironment()
	c.prove()
	c.resolveWorkers()
	c.resolveRoots()
	return c.result(names)
}

// mark takes what a process itself says.
func (c *classifier) mark(s *Snapshot, rules []Rule) {
	if isHelper(s.Args) {
		return
	}
	for _, of := range []func(*Snapshot) *mark{
		func(s *Snapshot) *mark { return byRule(s, rules) },
		bySockets, byTitle, byOtherTitle, byEnvironment, byCommand, byFIFO,
	} {
		if m := of(s); m != nil {
			m.s = s
			c.marks[s.PID] = m
			return
		}
	}
	if looksTitled(s.title()) {
		c.doubt(s, "the title has not the form of a stage's")
	}
}

func byRule(s *Snapshot, rules []Rule) *mark {
	for i := range rules {
		found, why, ok := rules[i].match(s)
		if !ok {
			continue
		}
		m := &mark{
			server: rules[i].Server, role: rules[i].Role, rule: rules[i].Names, proven: true,
			replica: orZero(found["replica"]), rank: orZero(found["rank"]), why: []string{why},
		}
		if stage := found["stage"]; stage != "" {
			if m.id = number(stage); m.id == nil && isName(stage) {
				m.stages = []string{stage}
			}
		}
		return m
	}
	return nil
}

func bySockets(s *Snapshot) *mark {
	k, ok := readSockets(s.Unix)
	if !ok {
		return nil
	}
	m := &mark{server: SGLangOmni, role: RoleStage, socketDir: k.dir, rank: k.rank, stages: k.stages}
	switch {
	case k.api:
		m.role, m.stages, m.rank = RoleAPI, nil, 0
		m.why = []string{"listens on completion.sock or abort.sock"}
		if len(k.stages) > 0 {
			m.why = append(m.why, "runs itself "+strings.Join(k.stages, ", "))
		}
	case len(k.stages) > 0:
		m.why = []string{"listens on stage_" + strings.Join(k.stages, ".sock, stage_") + ".sock"}
	default:
		m.role, m.stages = RoleWorker, k.follows
		m.why = []string{"listens on the comm socket of rank " + strconv.Itoa(k.rank)}
	}
	return m
}

func byTitle(s *Snapshot) *mark {
	if len(s.Args) != 1 {
		return nil
	}
	name, ok := parseStageTitle(s.Args[0])
	if !ok {
		return nil
	}
	m := &mark{server: VLLMOmni, role: RoleStage, id: name.id, replica: name.replica, rank: name.dp, why: []string{"process title"}}
	if id := fifoStage(s.FIFOs); id != nil {
		switch {
		case m.id == nil:
			m.id = id
			m.why = append(m.why, "wake-up FIFO of stage "+strconv.Itoa(*id))
		case *m.id == *id:
			m.why = append(m.why, "wake-up FIFO of the same stage")
		}
	}
	return m
}

// byOtherTitle takes workers, which get their stage later, and API servers beside the
// first.
func byOtherTitle(s *Snapshot) *mark {
	if len(s.Args) != 1 {
		return nil
	}
	if rank, ok := parseWorkerTitle(s.Args[0]); ok {
		return &mark{server: VLLMOmni, role: RoleWorker, rank: rank, why: []string{"process title of a worker"}}
	}
	if apiTitle.MatchString(s.Args[0]) {
		return &mark{server: VLLMOmni, role: RoleAPI, why: []string{"process title of an API server"}}
	}
	return nil
}

func byEnvironment(s *Snapshot) *mark {
	m := loggingName.FindStringSubmatch(s.Env[envLoggingPrefix])
	if m == nil {
		return nil
	}
	return &mark{server: VLLMOmni, role: RoleStage, id: number(m[1]), why: []string{envLoggingPrefix + " at exec"}}
}

func byFIFO(s *Snapshot) *mark {
	id := fifoStage(s.FIFOs)
	if id == nil {
		return nil
	}
	return &mark{server: VLLMOmni, role: RoleStage, id: id, why: []string{"wake-up FIFO"}}
}

func byCommand(s *Snapshot) *mark {
	cmd, ok := parseCommand(s.Args)
	if !ok {
		return nil
	}
	m := &mark{server: cmd.server, role: RoleAPI, proven: true, why: []string{"command line"}}
	if cmd.headless {
		m.role = roleLauncher
	}
	return m
}

// roleLauncher is a command that starts stages for a server elsewhere: an ancestor,
// and no part of what is found.
const roleLauncher = "launcher"

// resolveCommands takes away command lines that a forked child merely kept, and
// turns the children of a server that serve clients into more of its API servers.
func (c *classifier) resolveCommands() {
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.role != RoleAPI || !m.proven || m.rule != nil || len(m.why) != 1 || m.why[0] != "command line" {
			continue
		}
		above := c.above(s, func(p *Snapshot) bool {
			a := c.marks[p.PID]
			return a != nil && a.role == RoleAPI && a.server == m.server
		})
		if above == nil || len(s.TCP) > 0 {
			continue
		}
		delete(c.marks, s.PID)
		if slices.Equal(above.Args, s.Args) {
			c.doubt(s, "a forked child with the server's command line says nothing of its stage")
		}
	}
}

// firstPort is where SGLang-Omni's tcp scheme begins: completion, abort, and then the
// stages in the order of its configuration.
const firstPort = 16000

// markPorts takes the stages of a server of the tcp scheme, by their ports.
func (c *classifier) markPorts() {
	for _, s := range c.order {
		if c.marks[s.PID] != nil || isHelper(s.Args) {
			continue
		}
		server := c.above(s, func(p *Snapshot) bool {
			m := c.marks[p.PID]
			return m != nil && m.server == SGLangOmni && m.role == RoleAPI && p.listensOn(firstPort) && p.listensOn(firstPort+1)
		})
		for _, a := range s.TCP {
			id := a.Port - firstPort - 2
			if server == nil || id < 0 || id >= 64 || a.Host != "127.0.0.1" {
				continue
			}
			c.marks[s.PID] = &mark{
				s: s, server: SGLangOmni, role: RoleStage, id: &id, why: []string{"listens on port " + strconv.Itoa(a.Port)},
			}
			break
		}
	}
}

// inheritEnvironment makes workers of those that have a stage's variable from a stage
// above them.
func (c *classifier) inheritEnvironment() {
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.role != RoleStage || m.why[0] != envLoggingPrefix+" at exec" {
			continue
		}
		if stage := c.stageAbove(s); stage != nil {
			m.role, m.id = RoleWorker, nil
			m.why = append(m.why, "below stage process "+strconv.Itoa(stage.s.PID))
		}
	}
}

// stageAbove is the nearest stage among a process's ancestors.
func (c *classifier) stageAbove(s *Snapshot) *mark {
	p := c.above(s, func(p *Snapshot) bool {
		m := c.marks[p.PID]
		return m != nil && m.role == RoleStage
	})
	if p == nil {
		return nil
	}
	return c.marks[p.PID]
}

// maxAncestors bounds a walk up: parents are read one after the other, and may make
// a ring.
const maxAncestors = 64

// above is the nearest ancestor for which ok is true.
func (c *classifier) above(s *Snapshot, ok func(*Snapshot) bool) *Snapshot {
	for range maxAncestors {
		p := c.byPID[s.PPID]
		if p == nil || p == s {
			return nil
		}
		if ok(p) {
			return p
		}
		s = p
	}
	return nil
}

// prove drops what only says that it is a server or a stage, servers first, since
// they support their stages.
func (c *classifier) prove() {
	for _, role := range []string{RoleAPI, RoleStage} {
		c.proveRole(role)
	}
}

func (c *classifier) proveRole(role string) {
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.proven || m.role != role {
			continue
		}
		why := c.proof(m)
		if why == "" {
			delete(c.marks, s.PID)
			c.doubt(s, strings.Join(m.why, ", ")+" alone: it is below no server and maps no libzmq"+missing(s, "maps"))
			continue
		}
		m.why = append(m.why, why)
	}
}

// proof is what supports a mark besides the word of the process, "" if nothing does.
func (c *classifier) proof(m *mark) string {
	if p := c.above(m.s, c.isServer); p != nil {
		return fmt.Sprintf("below process %d, whose command line is a server's", p.PID)
	}
	if m.socketDir != "" && m.role == RoleStage {
		if api := c.socketServer(m); api != nil {
			return fmt.Sprintf("socket beside those of process %d", api.s.PID)
		}
	}
	if m.s.mapsZMQ() {
		return "maps libzmq"
	}
	if m.role == RoleAPI && len(m.s.TCP) > 0 {
		return "listens on a TCP port"
	}
	if p := c.above(m.s, func(p *Snapshot) bool { return p.PID > 1 && len(p.TCP) > 0 }); p != nil {
		return fmt.Sprintf("below process %d, which listens on a TCP port", p.PID)
	}
	return ""
}

// isServer says that a process is known for a server by its command line or a rule.
func (c *classifier) isServer(p *Snapshot) bool {
	m := c.marks[p.PID]
	return m != nil && m.proven && (m.role == RoleAPI || m.role == roleLauncher)
}

// socketServer is the owner of completion.sock beside a stage's socket.
func (c *classifier) socketServer(m *mark) *mark {
	for _, s := range c.order {
		a := c.marks[s.PID]
		if a != nil && a.role == RoleAPI && a.socketDir == m.socketDir && s.NetNS == m.s.NetNS {
			return a
		}
	}
	return nil
}

// resolveWorkers gives workers their parent's stage.
func (c *classifier) resolveWorkers() {
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.role != RoleWorker || m.id != nil || (m.proven && len(m.stages) > 0) {
			continue
		}
		if m.socketDir != "" {
			if why := c.proof(m); why != "" || c.socketServer(m) != nil {
				continue
			}
			delete(c.marks, s.PID)
			c.doubt(s, "a comm socket alone"+missing(s, "maps"))
			continue
		}
		stage := c.stageAbove(s)
		if stage == nil && m.proven {
			continue
		}
		if stage == nil {
			delete(c.marks, s.PID)
			c.doubt(s, "the title of a worker with no stage above it")
			continue
		}
		m.id, m.stages, m.rule, m.replica = stage.id, stage.stages, stage.rule, stage.replica
		m.why = append(m.why, fmt.Sprintf("stage of process %d", stage.s.PID))
	}
}

func (c *classifier) doubt(s *Snapshot, reason string) {
	c.doubts = append(c.doubts, Doubt{PID: s.PID, Title: printable(s.Args), Reason: reason})
}

// missing adds to a reason what could not be read.
func missing(s *Snapshot, what string) string {
	for _, m := range s.Missing {
		if strings.HasPrefix(m, what+":") {
			return "; " + m
		}
	}
	return ""
}

// result makes the list.
func (c *classifier) result(names Namer) Found {
	known := map[int]map[int]string{}
	var out Found
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.role == roleLauncher {
			continue
		}
		if _, ok := known[m.root]; !ok && names != nil {
			if root := c.byPID[m.root]; root != nil {
				known[m.root] = names(*root)
			}
		}
		out.Processes = append(out.Processes, m.process(known[m.root]))
	}
	slices.SortStableFunc(out.Processes, compareProcesses)
	out.Doubts = c.doubts
	slices.SortStableFunc(out.Doubts, func(a, b Doubt) int { return a.PID - b.PID })
	return out
}

func (m *mark) process(names map[int]string) event.Process {
	p := event.Process{
		PID: m.s.PID, Cmdline: printable(m.s.Args), StageID: m.id, Stage: m.stage(names), Server: m.server, Role: m.role,
		Replica: m.replica, Rank: m.rank, Root: m.root, StartTicks: m.s.StartTicks, Why: m.why,
	}
	if m.s.PPID > 0 {
		ppid := m.s.PPID
		p.PPID = &ppid
	}
	return p
}

// stage is the name of a stage: the user's and the configuration's before the
// rule's, and the number where there is none.
func (m *mark) stage(names map[int]string) string {
	switch {
	case m.role == RoleAPI:
		return RoleAPI
	case m.id == nil && len(m.stages) > 0:
		return strings.Join(m.stages, "+")
	case m.id == nil:
		return "stage noid"
	case names[*m.id] != "":
		return names[*m.id]
	case m.rule[*m.id] != "":
		return m.rule[*m.id]
	default:
		return "stage " + strconv.Itoa(*m.id)
	}
}

var roleOrder = map[string]int{RoleAPI: 0, RoleStage: 1, RoleWorker: 2}

func compareProcesses(a, b event.Process) int {
	id := func(p event.Process) int {
		if p.StageID == nil {
			return -1
		}
		return *p.StageID
	}
	return cmp.Or(
		cmp.Compare(a.Root, b.Root), cmp.Compare(roleOrder[a.Role], roleOrder[b.Role]), cmp.Compare(id(a), id(b)),
		cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID),
	)
}
