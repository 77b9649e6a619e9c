package look

import "testing"

// TestFormat: what is no HTML of the program is escaped, in text and in quoted attributes.
func TestFormat(t *testing.T) {
	hostile := `"><script>alert(1)</script>'&`
	const escaped = `&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;&amp;`
	for _, c := range []struct{ is, want HTML }{
		{Format(`<p title="{}">{}</p>`, hostile, hostile), `<p title="` + escaped + `">` + escaped + `</p>`},
		{Format(`{}`, Format(`<b>{}</b>`, 7)), `<b>7</b>`},
		{Format(`{}`, error(failure(hostile))), escaped},
		{Format(`100% of {}`, "{}"), `100% of {}`},
		{Each([]string{"<", "b"}, func(s string) HTML { return Format(`<i>{}</i>`, s) }), `<i>&lt;</i><i>b</i>`},
		{If(true, "a") + If(false, "b"), "a"},
	} {
		if c.is != c.want {
			t.Errorf("got %s, want %s", c.is, c.want)
		}
	}
}

type failure string

func (f failure) Error() string { return string(f) }

func TestFormatCountsItsArguments(t *testing.T) {
	for name, f := range map[string]func(){
		"too many": func() { Format(`<p>{}</p>`, 1, 2) },
		"too few":  func() { Format(`<p>{}{}</p>`, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
