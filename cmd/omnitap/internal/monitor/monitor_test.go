package monitor

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestKeep: the timer goes off again and again until it is stopped, and then never more.
// That it wakes the runtime's monitor is shown by the fake server's stages.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, count := &monitor{}, 0
		m.mu.Lock()
		m.timer = time.AfterFunc(every, func() {
			count++
			m.again()
		})
		m.mu.Unlock()
		time.Sleep(10*every + every/2) // of the bubble's own clock
		synctest.Wait()
		if count != 10 {
			t.Errorf("it went off %d times in ten and a half periods", count)
		}
		m.stop()
		time.Sleep(10 * every)
		synctest.Wait()
		if count != 10 {
			t.Errorf("stopped, it went off again: %d times", count)
		}
		stop := Keep()
		stop()
		stop()
	})
}
