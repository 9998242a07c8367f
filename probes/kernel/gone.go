//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"
)

// Attachments are the kernel's numbers of a family's attachments, to be asked for with
// Gone when it is closed.
func (f *Family) Attachments() map[link.ID]string {
	ids := map[link.ID]string{}
	for _, u := range f.uses {
		ids[u.id] = f.name + ": " + u.what
	}
	return ids
}

// gonePatience is how long the kernel may take to let go of an attachment that nobody
// holds any more: it waits until no CPU runs its program.
const gonePatience = 2 * time.Second

// Gone waits until attachments have ended and returns the names of those that have not.
// An error says that the kernel could not be asked.
func Gone(ids map[link.ID]string) (left []string, err error) {
	limit := time.Now().Add(gonePatience)
	for id, what := range ids {
		for {
			l, err := link.NewFromID(id)
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("asking for attachment %d: %w", id, err)
			}
			if err := l.Close(); err != nil {
				return nil, fmt.Errorf("asking for attachment %d: %w", id, err)
			}
			if time.Now().After(limit) {
				left = append(left, what)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return left, nil
}
