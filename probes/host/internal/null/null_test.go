package null

import (
	"errors"
	"strings"
	"testing"
)

func TestValue(t *testing.T) {
	r := Reasons{}
	if v := Value(r, "a", 7, nil); v == nil || *v != 7 || len(r) != 0 {
		t.Errorf("%v, %v", v, r)
	}
	if v := Value(r, "b", 7, errors.New("denied")); v != nil || r["b"] != "denied" {
		t.Errorf("%v, %v", v, r)
	}
}

func TestText(t *testing.T) {
	if got := Text("a\xffb"); got != "a\ufffdb" {
		t.Errorf("%q", got)
	}
	if got := Text(strings.Repeat("é", MaxText)); len(got) != MaxText+len("…") {
		t.Errorf("%d bytes", len(got))
	}
}
