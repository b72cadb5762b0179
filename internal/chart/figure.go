package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"math"
	"sync"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a picture.
type Figure struct {
	Title, Subtitle string
	// Panels are the strategies, in the order in which they are drawn.
	Panels []Panel
	// Moves are drawn below the panels, side by side.
	Moves []Move
	// Foot is a line of small print.
	Foot string
}

// Panel is one strategy: the rows of each shard, and what they would be if
// they were even.
type Panel struct {
	Name, Note string
	Rows, Even []float64
}

// Move is a change of the cluster: the share of rows that moves by each
// strategy, 0 to 1, in the order of the panels, and the least that has to.
type Move struct {
	Name    string
	Minimum float64
	Shares  []float64
}

var (
	ink     = color.RGBA{0x22, 0x22, 0x22, 0xff}
	quiet   = color.RGBA{0x66, 0x66, 0x66, 0xff}
	hair    = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	blue    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange  = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	red     = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	skyblue = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
)

// The measures of the picture, in points.
const (
	width       = 760
	margin      = 18
	headHeight  = 78
	panelHeight = 142
	moveHeight  = 24 // and moveRow for each strategy
	moveRow     = 17
	footHeight  = 20
	gap         = 16
)

// perRow is how many panels are side by side.
func (f *Figure) perRow() int {
	switch n := len(f.Panels); {
	case n <= 3:
		return max(n, 1)
	case n == 4:
		return 2
	default:
		return 3
	}
}

func (f *Figure) height() float64 {
	rows := (len(f.Panels) + f.perRow() - 1) / f.perRow()
	h := float64(headHeight + rows*(panelHeight+gap) + margin)
	if len(f.Moves) > 0 {
		h += float64(moveHeight + moveRow*len(f.Panels) + gap)
	}
	if f.Foot != "" {
		h += footHeight
	}
	return h
}

// WriteSVG draws the figure as SVG: text stays text.
func (f *Figure) WriteSVG(w io.Writer) error {
	c := vgsvg.New(width, vg.Length(f.height()))
	f.draw(c)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	out := b.Bytes()
	// For people who hear the picture, and for machines without these fonts.
	if i := bytes.Index(out, []byte("<g ")); i >= 0 {
		var label bytes.Buffer
		label.WriteString("<title>")
		if err := xml.EscapeText(&label, []byte(f.Title+". "+f.Subtitle)); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
		label.WriteString("</title>\n")
		out = append(append(append([]byte{}, out[:i]...), label.Bytes()...), out[i:]...)
	}
	out = bytes.ReplaceAll(out, []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	_, err := w.Write(out)
	return err
}

// WritePNG draws the figure as PNG, 1,520 pixels wide.
func (f *Figure) WritePNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(width, vg.Length(f.height())), vgimg.UseDPI(144))
	f.draw(c)
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

// fonts are part of the program: a picture needs none of the machine's.
var fonts = sync.OnceValue(func() *font.Cache { return font.NewCache(liberation.Collection()) })

func style(size float64, c color.Color, bold bool) draw.TextStyle {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return draw.TextStyle{Color: c, Font: f, Handler: text.Plain{Fonts: fonts()}}
}

// aligned returns the style with its anchor.
func aligned(s draw.TextStyle, x, y float64) draw.TextStyle {
	s.XAlign, s.YAlign = draw.XAlignment(x), draw.YAlignment(y)
	return s
}

// fit cuts a text so that it is not wider than a room.
func fit(s draw.TextStyle, t string, room vg.Length) string {
	if s.Width(t) <= room {
		return t
	}
	r := []rune(t)
	for len(r) > 1 && s.Width(string(r)+"…") > room {
		r = r[:len(r)-1]
	}
	return string(r) + "…"
}

// pen draws with the origin at the top left, y down.
type pen struct {
	c   draw.Canvas
	top vg.Length
}

func (p *pen) at(x, y float64) vg.Point { return vg.Point{X: vg.Length(x), Y: p.top - vg.Length(y)} }

func (p *pen) text(s draw.TextStyle, x, y float64, t string) { p.c.FillText(s, p.at(x, y), t) }

func (p *pen) box(c color.Color, x, y, w, h float64) {
	p.c.FillPolygon(c, []vg.Point{p.at(x, y), p.at(x+w, y), p.at(x+w, y+h), p.at(x, y+h)})
}

func (p *pen) line(c color.Color, wide float64, dashed bool, x1, y1, x2, y2 float64) {
	s := draw.LineStyle{Color: c, Width: vg.Length(wide)}
	if dashed {
		s.Dashes = []vg.Length{3, 2}
	}
	p.c.StrokeLines(s, []vg.Point{p.at(x1, y1), p.at(x2, y2)})
}

func (f *Figure) draw(canvas vg.CanvasSizer) {
	p := &pen{draw.New(canvas), vg.Length(f.height())}
	p.box(color.White, 0, 0, width, f.height())
	title, sub := style(17, ink, true), style(10.5, quiet, false)
	p.text(title, margin, 32, fit(title, f.Title, width-2*margin))
	p.text(sub, margin, 49, fit(sub, f.Subtitle, width-2*margin))

	p.text(style(8.5, quiet, false), margin, 64, "Bars: rows on each shard, all on one scale. Dashed: where they would be even. Orange bar: the fullest shard, if it is more than 10 % above.")

	most := 0.0
	for _, panel := range f.Panels {
		for i := range panel.Rows {
			most = max(most, panel.Rows[i], panel.Even[i])
		}
	}
	scale := newScale(most)
	per := f.perRow()
	wide := (width - 2*margin - float64(per-1)*gap) / float64(per)
	y := float64(headHeight)
	for i, panel := range f.Panels {
		x := margin + float64(i%per)*(wide+gap)
		panel.draw(p, scale, x, y, wide)
		if i%per == per-1 || i == len(f.Panels)-1 {
			y += panelHeight + gap
		}
	}
	if len(f.Moves) > 0 {
		wide := (width - 2*margin - float64(len(f.Moves)-1)*gap*2) / float64(len(f.Moves))
		for i, m := range f.Moves {
			m.draw(p, f.Panels, margin+float64(i)*(wide+2*gap), y, wide)
		}
		y += float64(moveHeight+moveRow*len(f.Panels)) + gap
	}
	if f.Foot != "" {
		small := style(8.5, quiet, false)
		p.text(small, margin, y+8, fit(small, f.Foot, width-2*margin))
	}
}

// scale is an axis from 0 with round numbers.
type scale struct{ top, step float64 }

func newScale(most float64) scale {
	if most <= 0 {
		return scale{1, 1}
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, divide := range []float64{5, 4, 2, 1} {
		if most/(step/divide) <= 5 {
			step /= divide
			break
		}
	}
	if step < 1 {
		step = 1
	}
	return scale{math.Max(most*1.04, step), step}
}

// short writes a number of rows for an axis.
func short(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%g G", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%g M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%g k", n/1e3)
	}
	return fmt.Sprintf("%g", n)
}

func (panel *Panel) draw(p *pen, s scale, x, y, wide float64) {
	const head, foot, left = 20.0, 14.0, 34.0
	name, note := style(11.5, ink, true), style(9.5, quiet, false)
	tick := style(8.5, quiet, false)
	p.text(name, x+left, y+12, panel.Name)
	from := x + left + float64(name.Width(panel.Name)) + 8
	p.text(note, from, y+12, fit(note, panel.Note, vg.Length(x+wide-from)))
	x0, y0, w, h := x+left, y+head, wide-left, panelHeight-head-foot
	up := func(v float64) float64 { return y0 + h - v/s.top*h }
	for v := 0.0; v <= s.top; v += s.step {
		p.line(hair, 0.6, false, x0, up(v), x0+w, up(v))
		p.text(aligned(tick, -1, -0.4), x0-5, up(v), short(v))
	}
	n := len(panel.Rows)
	slot := w / float64(n)
	fullest := -1
	for i, v := range panel.Rows {
		if panel.Even[i] > 0 && (fullest < 0 || v/panel.Even[i] > panel.Rows[fullest]/panel.Even[fullest]) {
			fullest = i
		}
	}
	inner := 0.74
	if n > 40 {
		inner = 1
	}
	for i, v := range panel.Rows {
		c := blue
		if i == fullest && v > panel.Even[i]*1.1 {
			c = red
		}
		p.box(c, x0+(float64(i)+(1-inner)/2)*slot, up(v), slot*inner, v/s.top*h)
	}
	// The even line, in steps where weights differ.
	for i := 0; i < n; {
		j := i
		for j < n && panel.Even[j] == panel.Even[i] {
			j++
		}
		p.line(ink, 1.1, true, x0+float64(i)*slot, up(panel.Even[i]), x0+float64(j)*slot, up(panel.Even[i]))
		i = j
	}
	p.line(quiet, 0.8, false, x0, y0+h, x0+w, y0+h)
	every := 1
	for float64(every)*slot < 16 {
		every *= 2
	}
	for i := 0; i < n; i += every {
		p.text(aligned(tick, -0.5, -1), x0+(float64(i)+0.5)*slot, y0+h+3, fmt.Sprint(i))
	}
}

func (m *Move) draw(p *pen, panels []Panel, x, y, wide float64) {
	const left, right, head = 66.0, 44.0, 22.0
	name := style(11.5, ink, true)
	label, small := style(9.5, ink, false), style(8.5, quiet, false)
	p.text(name, x, y+12, m.Name)
	p.text(small, x+float64(name.Width(m.Name))+8, y+12, fmt.Sprintf("rows that move; dashed: %s, what even shards need", share(m.Minimum)))
	most := m.Minimum
	for _, s := range m.Shares {
		most = max(most, s)
	}
	if most == 0 {
		most = 1
	}
	w := wide - left - right
	for i, s := range m.Shares {
		at := y + head + float64(i)*moveRow
		p.text(aligned(label, -1, -0.4), x+left-6, at+moveRow/2, panels[i].Name)
		c := skyblue
		if s > 1.5*m.Minimum {
			c = orange
		}
		p.box(c, x+left, at+3, max(s/most*w, 0.5), moveRow-6)
		p.text(aligned(label, 0, -0.4), x+left+max(s, m.Minimum)/most*w+6, at+moveRow/2, share(s))
	}
	end := y + head + float64(len(m.Shares))*moveRow
	p.line(ink, 1.1, true, x+left+m.Minimum/most*w, y+head-1, x+left+m.Minimum/most*w, end)
	p.line(quiet, 0.8, false, x+left, y+head, x+left, end)
}

func share(s float64) string { return fmt.Sprintf("%.1f %%", 100*s) }
