package timeline

import "testing"

func TestTrace(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for value, valid := range map[string]bool{
		good: true, "cc" + good[2:]: true,
		"": false, good[:54]: false, good + "0": false, good + "-more": false,
		"ff" + good[2:]: false, // no version
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":  false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c8031-9c-b7ad6b7169203331-01": false,
	} {
		var b Builder
		b.Trace(value)
		if (b.Traceparent() == value) != (valid || value == "") || !valid && b.Traceparent() != "" {
			t.Errorf("%q is kept as %q", value, b.Traceparent())
		}
	}
}
