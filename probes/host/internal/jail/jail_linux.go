package jail

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// beneath opens a file with the folder for a root, as openat2(2) of Linux 5.6 does it:
// absolute links start there, and ".." stays there. The file is looked at before it is
// opened for reading.
func (j *Jail) beneath(name string, folder bool) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := -1, error(unix.EAGAIN)
	// EAGAIN says that a rename got in the way.
	for try := 0; try < 16 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); try++ {
		fd, err = unix.Openat2(int(j.dir.Fd()), name, &how)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	kind, want := st.Mode&unix.S_IFMT, uint32(unix.S_IFREG)
	if folder {
		want = unix.S_IFDIR
	}
	if kind != want {
		return nil, errNotRegular
	}
	return os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// changed is when a file's inode last changed.
func changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
