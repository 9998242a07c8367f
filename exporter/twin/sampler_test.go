package twin

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestSampleShare(t *testing.T) {
	for _, share := range []float64{0, 0.01, 0.25, 1} {
		s, n := NewSampler(Config{Sample: share}), 0
		for i := range 20000 {
			id := fmt.Sprintf("req-%06d", i)
			if s.Wants(id) {
				n++
			}
			if s.Wants(id) != NewSampler(Config{Sample: share}).Wants(id) {
				t.Fatal("another time, another answer")
			}
		}
		if got := float64(n) / 20000; got < share-0.01 || got > share+0.01 || (share == 0 || share == 1) && got != share {
			t.Errorf("share %v gives %v", share, got)
		}
	}
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler(Config{Sample: 1, MaxConcurrent: 2, MaxPerMinute: 3})
		begin := func(want string) func() {
			t.Helper()
			release, reason := s.Begin()
			if reason != want {
				t.Errorf("%q, want %q", reason, want)
			}
			return release
		}
		a, b := begin(""), begin("")
		begin("2 twins under way")
		a()
		begin("")()
		begin("3 twins sent within a minute")
		b()
		time.Sleep(time.Minute)
		begin("")()
	})
}
