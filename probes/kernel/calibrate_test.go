//go:build linux && amd64

package kernel

import "testing"

func TestCalibrate(t *testing.T) {
	if _, err := NewWatch(); err != nil {
		t.Fatal(err)
	}
	for _, multi := range []bool{true, false} {
		c, err := Calibrate(t.Context(), multi, Emulated, Stepped, Marked)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(multi, c)
	}
}
