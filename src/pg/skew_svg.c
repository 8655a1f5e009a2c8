/*
 * skew_svg.c
 *	  shuffle_skew_svg(): the spread of rows over partitions as a picture.
 *
 * One column of sections, drawn from top to bottom: title, figures, histogram of sizes,
 * sizes in partition order, largest partitions.  Self-contained: system fonts, colours
 * for light and dark through a media query, no scripts.  All text that comes from the
 * database is escaped.
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "skew.h"

#define WIDTH		  960
#define MARGIN		  32
#define INNER		  (WIDTH - 2 * MARGIN)
#define LABEL_WIDTH	  230 /* of the histogram's size ranges */
#define ROW_HEIGHT	  24
#define STRIP_HEIGHT  110
#define STRIP_COLUMNS 448
#define LINE_CHARS	  115 /* what fits a line of small text */

/* Plain rules instead of custom properties: not every renderer knows those. */
static const char *const style =
	"<style>\n"
	"text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
	"font-size:14px;fill:#1b1f24;font-variant-numeric:tabular-nums}\n"
	".title{font-size:22px;font-weight:600}.head{font-size:15px;font-weight:600}"
	".figure{font-size:20px;font-weight:600}\n"
	".page{fill:#fff}.soft{font-size:13px;fill:#59636e}.tile{fill:#f4f6f8}\n"
	".bar{fill:#2f6fd0}.hot{fill:#bc4c00}\n"
	".line{stroke:#d5dbe1}.median{stroke:#1b1f24;stroke-dasharray:5 4}\n"
	"@media (prefers-color-scheme:dark){\n"
	"text{fill:#e6edf3}.page{fill:#0d1117}.soft{fill:#9aa4ae}.tile{fill:#161b22}\n"
	".bar{fill:#5b9bf3}.hot{fill:#f0883e}.line{stroke:#343b43}.median{stroke:#e6edf3}\n"
	"}\n"
	"</style>\n";

/* Text as XML character data; what XML cannot have becomes a question mark. */
static void
append_escaped(StringInfo out, const char *text)
{
	bool utf8 = GetDatabaseEncoding() == PG_UTF8;

	for (const char *p = text; *p != '\0'; p++)
	{
		switch (*p)
		{
			case '&':
				appendStringInfoString(out, "&amp;");
				break;
			case '<':
				appendStringInfoString(out, "&lt;");
				break;
			case '>':
				appendStringInfoString(out, "&gt;");
				break;
			case '"':
				appendStringInfoString(out, "&quot;");
				break;
			case '\n':
			case '\r':
			case '\t':
				appendStringInfoChar(out, ' ');
				break;
			default:
				/* U+FFFE and U+FFFF are no characters of XML either */
				if (utf8 && strncmp(p, "\xef\xbf", 2) == 0 && ((unsigned char) p[2] | 1) == 0xbf)
				{
					appendStringInfoChar(out, '?');
					p += 2;
				}
				else
					appendStringInfoChar(out, (unsigned char) *p < 0x20 || *p == 0x7f ? '?' : *p);
		}
	}
}

/* The same, cut to a number of characters. */
static void
append_cut(StringInfo out, const char *text, int chars)
{
	int	  len = (int) strlen(text);
	char *cut = pstrdup(text);

	if (pg_mbstrlen_with_len(text, len) > chars)
	{
		cut[pg_mbcharcliplen(text, len, chars - 3)] = '\0';
		append_escaped(out, cut);
		appendStringInfoString(out, "...");
	}
	else
		append_escaped(out, cut);
	pfree(cut);
}

static void
draw_text(StringInfo out, double x, double y, const char *class, const char *anchor,
		  const char *text)
{
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
	if (class != NULL)
		appendStringInfo(out, " class=\"%s\"", class);
	if (anchor != NULL)
		appendStringInfo(out, " text-anchor=\"%s\"", anchor);
	appendStringInfoChar(out, '>');
	append_cut(out, text, LINE_CHARS);
	appendStringInfoString(out, "</text>\n");
}

/* A rectangle that shows a text when pointed at. */
static void
draw_bar(StringInfo out, double x, double y, double width, double height, const char *class,
		 const char *tip)
{
	appendStringInfo(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"",
					 x, y, width, height, class);
	if (tip == NULL)
		appendStringInfoString(out, "/>\n");
	else
	{
		appendStringInfoString(out, "><title>");
		append_escaped(out, tip);
		appendStringInfoString(out, "</title></rect>\n");
	}
}

static const char *
number(int64 n)
{
	return shuffle_skew_number(n);
}

static double
draw_head(StringInfo out, const ShuffleSkew *skew, double y)
{
	draw_text(out, MARGIN, y + 22, "title", NULL, skew->relation);
	draw_text(out, MARGIN, y + 46, "soft", NULL,
			  psprintf("%s partition%s by %s, %s %s", number(skew->npartitions),
					   skew->npartitions == 1 ? "" : "s", skew->routing, number(skew->total),
					   skew->unit));
	return y + 66;
}

static double
draw_figures(StringInfo out, const ShuffleSkew *skew, double y)
{
	const double gap = 12;
	const double width = (INNER - 4 * gap) / 5;
	const char *label[] = {"largest / median", "largest", "median", "smallest", "empty partitions"};
	const char *value[] = {skew->median > 0 ? psprintf("%.2f", skew->ratio) : "-",
						   number(skew->largest), number((int64) rint(skew->median)),
						   number(skew->smallest), number(skew->empty)};

	for (int i = 0; i < 5; i++)
	{
		double x = MARGIN + i * (width + gap);

		appendStringInfo(out,
						 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"62\" rx=\"6\" "
						 "class=\"tile\"/>\n",
						 x, y, width);
		draw_text(out, x + 14, y + 24, "soft", NULL, label[i]);
		draw_text(out, x + 14, y + 49,
				  i == 0 && (skew->ratio > 2 || skew->median == 0) ? "figure hot" : "figure", NULL,
				  value[i]);
	}
	return y + 62 + 34;
}

static double
draw_histogram_row(StringInfo out, double y, const char *label, int partitions, int most, bool hot)
{
	const double left = MARGIN + LABEL_WIDTH;
	const double full = WIDTH - MARGIN - left - 70;
	double		 width = partitions == 0 ? 0 : Max(full * partitions / most, 1.5);

	draw_text(out, left - 12, y + 16, NULL, "end", label);
	if (partitions > 0)
		draw_bar(out, left, y + 3, width, ROW_HEIGHT - 6, hot ? "hot" : "bar",
				 psprintf("%s: %s partitions", label, number(partitions)));
	draw_text(out, left + width + 8, y + 16, "soft", NULL, number(partitions));
	return y + ROW_HEIGHT;
}

static double
draw_histogram(StringInfo out, const ShuffleSkew *skew, double y)
{
	int most = Max(skew->empty, 1);

	for (int i = 0; i < skew->nbins; i++)
		most = Max(most, skew->bins[i].partitions);
	draw_text(out, MARGIN, y + 4, "head", NULL, psprintf("Partitions by their %s", skew->unit));
	y += 16;
	if (skew->empty > 0)
		y = draw_histogram_row(out, y, "0", skew->empty, most, false);
	for (int i = 0; i < skew->nbins; i++)
	{
		const ShuffleSkewBin *bin = &skew->bins[i];

		y = draw_histogram_row(out, y, psprintf("%s - %s", number(bin->low), number(bin->high)),
							   bin->partitions, most, bin->low > 2 * skew->median);
	}
	return y + 34;
}

/* All partitions in order, neighbours together where there are many: the largest shows. */
static double
draw_strip(StringInfo out, const ShuffleSkew *skew, double y)
{
	int	   columns = Min(skew->npartitions, STRIP_COLUMNS);
	double step = (double) INNER / columns;
	double gap = step >= 4 ? 1 : 0;
	double base;
	double median;

	draw_text(out, MARGIN, y + 4, "head", NULL, "In partition order");
	y += 22;
	base = y + STRIP_HEIGHT;
	for (int c = 0; c < columns; c++)
	{
		int	   first = (int) ((int64) skew->npartitions * c / columns);
		int	   end = (int) ((int64) skew->npartitions * (c + 1) / columns);
		int	   at = first;
		double height;

		for (int p = first; p < end; p++)
		{
			if (skew->sizes[p] > skew->sizes[at])
				at = p;
		}
		if (skew->sizes[at] == 0)
			continue;
		height = Max((double) skew->sizes[at] / (double) skew->largest * STRIP_HEIGHT, 1);
		draw_bar(out, MARGIN + c * step, base - height, step - gap, height,
				 skew->sizes[at] > 2 * skew->median ? "hot" : "bar",
				 psprintf("partition %d: %s %s", at, number(skew->sizes[at]), skew->unit));
	}
	median = base - skew->median / (double) skew->largest * STRIP_HEIGHT;
	appendStringInfo(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"line\"/>\n",
					 MARGIN, WIDTH - MARGIN, base + 0.5, base + 0.5);
	appendStringInfo(out,
					 "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"median\">"
					 "<title>median: %s %s</title></line>\n",
					 MARGIN, WIDTH - MARGIN, median, median, number((int64) rint(skew->median)),
					 skew->unit);
	draw_text(out, MARGIN, base + 18, "soft", NULL, "0");
	draw_text(out, WIDTH / 2.0, base + 18, "soft", "middle", "dashed: median");
	draw_text(out, WIDTH - MARGIN, base + 18, "soft", "end", number(skew->npartitions - 1));
	return base + 18 + 36;
}

static double
draw_largest(StringInfo out, const ShuffleSkew *skew, double y)
{
	const double left = MARGIN + LABEL_WIDTH;
	const double full = WIDTH - MARGIN - left - 80;

	draw_text(out, MARGIN, y + 4, "head", NULL,
			  skew->key == NULL ?
				  "Largest partitions" :
				  psprintf("Largest partitions and their most frequent %s", skew->key));
	y += 16;
	for (int i = 0; i < skew->ntop; i++)
	{
		const ShuffleSkewTop *top = &skew->top[i];
		double				  width = Max(full * (double) top->size / (double) skew->largest, 1.5);

		draw_text(out, MARGIN, y + 16, NULL, NULL, psprintf("partition %d", top->partition));
		draw_text(out, left - 12, y + 16, NULL, "end", number(top->size));
		draw_bar(out, left, y + 3, width, ROW_HEIGHT - 6,
				 top->size > 2 * skew->median ? "hot" : "bar", NULL);
		if (skew->median > 0)
			draw_text(out, left + width + 8, y + 16, "soft", NULL,
					  psprintf("%.2fx", (double) top->size / skew->median));
		y += ROW_HEIGHT;
		if (skew->key != NULL)
		{
			StringInfoData keys;

			initStringInfo(&keys);
			for (int k = 0; k < top->nkeys; k++)
				appendStringInfo(&keys, "%s%s (%.1f%%)", k > 0 ? ", " : "", top->keys[k].text,
								 100 * top->keys[k].share);
			draw_text(out, left, y + 11, "soft", NULL,
					  top->nkeys > 0 ? keys.data : "no key stands out");
			y += 24;
		}
	}
	return y + 8;
}

char *
shuffle_skew_draw(const ShuffleSkew *skew)
{
	StringInfoData body;
	StringInfoData out;
	double		   y = MARGIN - 8;

	initStringInfo(&body);
	y = draw_head(&body, skew, y);
	y = draw_figures(&body, skew, y);
	if (skew->total > 0)
	{
		y = draw_histogram(&body, skew, y);
		y = draw_strip(&body, skew, y);
		y = draw_largest(&body, skew, y);
	}

	initStringInfo(&out);
	appendStringInfo(&out,
					 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
					 "width=\"%d\" height=\"%.0f\" role=\"img\">\n<title>Partitions of ",
					 WIDTH, y + MARGIN - 16, WIDTH, y + MARGIN - 16);
	append_escaped(&out, skew->relation);
	appendStringInfo(&out,
					 "</title>\n%s<rect width=\"100%%\" height=\"100%%\" "
					 "class=\"page\"/>\n",
					 style);
	appendBinaryStringInfo(&out, body.data, body.len);
	appendStringInfoString(&out, "</svg>\n");
	return out.data;
}
