package ordered

import "testing"

func TestRender(t *testing.T) {
	v := Obj{"a", nil, "ü", List{1, 2.5, 100.0, true, "x\"é\n"}, "o", Obj{"k", Raw(`{ }`), "s", []string{"p"}}}
	const compact = `{"a":null,"ü":[1,2.5,100.0,true,"x\"é\n"],"o":{"k":{ },"s":["p"]}}`
	if got := Compact.Render(v); got != compact {
		t.Errorf("compact = %s", got)
	}
	const spaced = `{"a": null, "\u00fc": [1, 2.5, 100.0, true, "x\"\u00e9\n"], "o": {"k": { }, "s": ["p"]}}`
	if got := Spaced.Render(v); got != spaced {
		t.Errorf("spaced = %s", got)
	}
}

func TestParseKeepsTheOrder(t *testing.T) {
	const text = `{"z":1,"a":[true,null,{"c":"d","b":2.50}],"e":{}}`
	v, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := Compact.Render(v); got != text {
		t.Errorf("again = %s, want %s", got, text)
	}
	o := v.(Obj).With("a", 3, "n", "new")
	if got := Compact.Render(o); got != `{"z":1,"a":3,"e":{},"n":"new"}` {
		t.Errorf("With = %s", got)
	}
	if o.Get("n") != "new" || o.Get("none") != nil {
		t.Errorf("Get(n) = %v", o.Get("n"))
	}
	if _, err := Parse([]byte(`{"a":`)); err == nil {
		t.Error("cut JSON is no error")
	}
}
