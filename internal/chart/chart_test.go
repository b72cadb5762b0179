package chart

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"os"
	"strings"
	"testing"
)

func figure() *Figure {
	even := []float64{100, 100, 100, 100, 200, 100, 100, 100}
	f := &Figure{Title: "Rows per shard: packages <by> maintainer", Subtitle: "8 shards, 1,000,000 rows, 100,000 keys", Foot: "cleave simulate --from x"}
	for i, n := range []string{"balanced", "ring", "jump", "rendezvous", "modulo", "range"} {
		rows := []float64{90, 110, 100, 105, 190, 95, 100, 120 + 80*float64(i%2)}
		f.Panels = append(f.Panels, Panel{Name: n, Note: "skew 1.23, deviation 4 %", Rows: rows, Even: even})
	}
	f.Moves = []Move{{"add 1 shard", 1.0 / 9, []float64{.111, .12, .113, .11, .888, .12}}, {"remove 1 shard", 1.0 / 8, []float64{.111, .12, .113, .11, .888, .12}}}
	return f
}

// TestFigure draws every shape of figure: both formats can be read, and the
// same figure gives the same bytes.
func TestFigure(t *testing.T) {
	big := figure()
	for i := range big.Panels {
		big.Panels[i].Rows, big.Panels[i].Even = make([]float64, 1024), make([]float64, 1024)
		for s := range 1024 {
			big.Panels[i].Rows[s], big.Panels[i].Even[s] = float64(s), 512
		}
	}
	one := figure()
	one.Panels, one.Moves = one.Panels[:1], nil
	zero := &Figure{Title: strings.Repeat("a long title ", 30), Panels: []Panel{{Name: "ring", Rows: []float64{0}, Even: []float64{0}}}, Moves: []Move{{"add", 0, []float64{0}}}}
	for name, f := range map[string]*Figure{"plain": figure(), "big": big, "one": one, "zero": zero} {
		var svg, again, img bytes.Buffer
		if err := f.WriteSVG(&svg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := f.WriteSVG(&again); err != nil || !bytes.Equal(svg.Bytes(), again.Bytes()) {
			t.Errorf("%s: two drawings differ, %v", name, err)
		}
		d := xml.NewDecoder(bytes.NewReader(svg.Bytes()))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, want := range []string{"<title>", "viewBox", f.Panels[0].Name} {
			if !strings.Contains(svg.String(), want) {
				t.Errorf("%s: no %q in the SVG", name, want)
			}
		}
		if err := f.WritePNG(&img); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "plain" && os.Getenv("CHART_OUT") != "" {
			os.WriteFile(os.Getenv("CHART_OUT"), img.Bytes(), 0o644)
			os.WriteFile(os.Getenv("CHART_OUT")+".svg", svg.Bytes(), 0o644)
		}
		pic, err := png.Decode(&img)
		if err != nil || pic.Bounds().Dx() != 2*width {
			t.Errorf("%s: %v, %v", name, err, pic.Bounds())
		}
	}
}
