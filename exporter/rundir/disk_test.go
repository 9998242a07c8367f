package rundir

import (
	"io"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// disk holds files that share a limited room, as a small file system does.
type disk struct {
	mu    sync.Mutex // protects the fields below
	room  int
	most  int // bytes that one write takes; 0 is any number
	files map[string][]byte
}

func newDisk(room int) *disk { return &disk{room: room, files: map[string][]byte{}} }

func (d *disk) open(path string) (file, error) {
	return &diskFile{disk: d, name: filepath.Base(path)}, nil
}

func (d *disk) grow(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += n
}

func (d *disk) text(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.files[name])
}

type diskFile struct {
	disk *disk
	name string
}

// Write fills what room there is and fails with the rest, as ext4 does.
func (f *diskFile) Write(p []byte) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), d.room)
	var err error
	if n < len(p) {
		err = syscall.ENOSPC
	}
	if d.most > 0 && n > d.most {
		n, err = d.most, io.ErrShortWrite
	}
	d.files[f.name] = append(d.files[f.name], p[:n]...)
	d.room -= n
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += len(d.files[f.name]) - int(size)
	d.files[f.name] = slices.Clip(d.files[f.name][:size])
	return nil
}

func (f *diskFile) Sync() error  { return nil }
func (f *diskFile) Close() error { return nil }
