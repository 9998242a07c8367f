package find

import (
	"net"
	"path"
	"strconv"
	"strings"
)

// Snapshot is what was read of one process. What was not read, or could not be, is
// empty; the latter is named in Missing.
type Snapshot struct {
	PID, PPID int
	// StartTicks is the start in clock ticks since boot; it tells a pid from its reuse.
	StartTicks uint64
	// Comm is the main thread's name, at most 15 bytes of anything.
	Comm string
	// Args is the command line. A process that set a title has one element.
	Args []string
	// Env are the variables of the environment at exec that discovery looks at.
	Env map[string]string
	// Unix are the paths of the Unix sockets that it listens on, TCP the addresses.
	Unix []string
	TCP  []Address
	// FIFOs are the files below /dev/shm that its descriptors have open and whose
	// directory is vLLM-Omni's, Pipes the inodes of its pipes.
	FIFOs []string
	Pipes []uint64
	// Libs are the files that it maps with an executable part, each inode once.
	Libs []Lib
	// NetNS, MountNS and PIDNS are the inodes of its namespaces, 0 where unread.
	NetNS, MountNS, PIDNS uint64
	// Missing says what could not be read and why, one sentence an entry.
	Missing []string
}

// Address is a listening TCP address.
type Address struct {
	Host string
	Port int
}

// Lib is a file that a process maps.
type Lib struct {
	// Path is the path in the process's own mount namespace; open it below
	// /proc/PID/root.
	Path string
	// Dev is the device as major:minor in hexadecimal, Inode the file's number there.
	Dev   string
	Inode uint64
	// Deleted says that the file was unlinked or replaced while mapped.
	Deleted bool
}

// title is what the process calls itself: a title, or its program.
func (s *Snapshot) title() string {
	if len(s.Args) == 0 {
		return ""
	}
	return s.Args[0]
}

// mapsZMQ says whether the process has loaded libzmq, of itself or inside pyzmq.
func (s *Snapshot) mapsZMQ() bool {
	for _, l := range s.Libs {
		base := path.Base(l.Path)
		if strings.HasPrefix(base, "libzmq") || strings.HasPrefix(base, "_zmq.") {
			return true
		}
	}
	return false
}

// listensOn says whether the process listens on a TCP port.
func (s *Snapshot) listensOn(port int) bool {
	for _, a := range s.TCP {
		if a.Port == port {
			return true
		}
	}
	return false
}

// isPython says whether the program is an interpreter of Python.
func (s *Snapshot) isPython() bool {
	return isPythonProgram(s.title())
}

func isPythonProgram(program string) bool {
	base := path.Base(program)
	return strings.HasPrefix(base, "python") || strings.HasPrefix(base, "pypy")
}

// The variables of the environment that discovery itself looks at.
const (
	envLoggingPrefix = "VLLM_LOGGING_PREFIX"
	envDevices       = "CUDA_VISIBLE_DEVICES"
	envReplica       = "VLLM_OMNI_REPLICA_ID"
)

// String is HOST:PORT.
func (a Address) String() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}
