package find

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Servers that are known without a rule, and the roles of a process.
const (
	VLLMOmni   = "vllm-omni"
	SGLangOmni = "sglang-omni"

	RoleAPI    = "api"
	RoleStage  = "stage"
	RoleWorker = "worker"
)

var (
	// stageTitle is vLLM-Omni's since the stages have titles: any prefix
	// (VLLM_PROCESS_NAME_PREFIX), and nothing before, behind or between.
	stageTitle  = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,128}?::StageEngineCoreProc_stage(\d{1,9}|noid)_replica(\d{1,9})(?:_DP(\d{1,9}))?$`)
	workerTitle = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,128}?::(?:Worker|EngineCore)((?:_(?:DP|PP|PCP|TP|DCP|EP)\d{1,9})*)$`)
	apiTitle    = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,128}?::APIServer(?:_\d{1,9})?$`)
	tensorRank  = regexp.MustCompile(`_TP(\d+)`)
	loggingName = regexp.MustCompile(`^\[Stage-(\d{1,9})\]`)
	wakeFIFO    = regexp.MustCompile(`^/dev/shm/omni_shm_wake_[^/]{1,128}/(\d{1,9})_[0-9a-f]{32}$`)
	stageSocket = regexp.MustCompile(`^(?:stage_([A-Za-z0-9_.-]{1,64})|comm_([A-Za-z0-9_.-]{1,64})_rank(\d{1,9})|(completion|abort))\.sock$`)
)

// stageName is what a title of a stage says. id is nil for "noid".
type stageName struct {
	id          *int
	replica, dp int
}

// parseStageTitle reads a stage's title.
func parseStageTitle(title string) (stageName, bool) {
	m := stageTitle.FindStringSubmatch(title)
	if m == nil {
		return stageName{}, false
	}
	return stageName{id: number(m[1]), replica: orZero(m[2]), dp: orZero(m[3])}, true
}

// parseWorkerTitle reads the title of a worker, which names no stage.
func parseWorkerTitle(title string) (rank int, ok bool) {
	m := workerTitle.FindStringSubmatch(title)
	if m == nil {
		return 0, false
	}
	if tp := tensorRank.FindStringSubmatch(m[1]); tp != nil {
		return orZero(tp[1]), true
	}
	return 0, true
}

// looksTitled says that a title holds the words without having the form.
func looksTitled(title string) bool {
	return strings.Contains(title, "StageEngineCoreProc")
}

// number is a number of at most nine digits, nil where s is none.
func number(s string) *int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

func orZero(s string) int {
	if n := number(s); n != nil {
		return *n
	}
	return 0
}

// fifoStage is the stage that a process's FIFOs agree on, nil where they do not or
// there is none.
func fifoStage(fifos []string) *int {
	var id *int
	for _, f := range fifos {
		m := wakeFIFO.FindStringSubmatch(f)
		if m == nil {
			continue
		}
		n := number(m[1])
		if id != nil && *id != *n {
			return nil
		}
		id = n
	}
	return id
}

// sockets is what SGLang-Omni's listening sockets say about their owner.
type sockets struct {
	// dir is the directory of one pipeline.
	dir string
	// stages are the stages that it runs, follows those of which it has a comm socket.
	stages, follows []string
	rank            int
	api             bool
}

// readSockets reads the names of listening sockets. The first directory that has any
// is the pipeline's.
func readSockets(paths []string) (sockets, bool) {
	var out sockets
	for _, p := range slices.Sorted(slices.Values(paths)) {
		m := stageSocket.FindStringSubmatch(path.Base(p))
		if m == nil || (out.dir != "" && path.Dir(p) != out.dir) {
			continue
		}
		out.dir = path.Dir(p)
		switch {
		case m[1] != "":
			out.stages = append(out.stages, m[1])
		case m[2] != "":
			out.follows = append(out.follows, m[2])
			out.rank = max(out.rank, orZero(m[3]))
		default:
			out.api = true
		}
	}
	return out, out.dir != ""
}

// isHelper says whether a process is one of Python's own: a resource tracker or a
// fork server. They touch segments and stand between parents and children, and are
// no part of a stage.
func isHelper(args []string) bool {
	for i, a := range args {
		if i > 0 && args[i-1] == "-c" &&
			(strings.Contains(a, "multiprocessing.resource_tracker") || strings.Contains(a, "multiprocessing.forkserver")) {
			return true
		}
	}
	return false
}
