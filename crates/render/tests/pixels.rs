//! What images show: colours, backgrounds and how a picture fits. They are decoded and looked at.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_render::render;
use image::{Rgba, RgbaImage};
use serde_json::{Value, json};

/// The first file of a request, decoded.
fn pixels(request: &Value, images: &dyn Fn(&str) -> Option<Vec<u8>>) -> RgbaImage {
    let rendered = render(request, images).unwrap();
    image::load_from_memory(&rendered.outputs[0].bytes).unwrap().to_rgba8()
}

fn formula(options: &Value) -> RgbaImage {
    let object = json!({"format": "latex", "source": r"\frac{a}{b}"});
    let request =
        json!({"task": "render", "formats": ["png"], "object": object, "options": options});
    pixels(&request, &|_| None)
}

/// How many pixels have exactly a colour.
fn count(image: &RgbaImage, colour: [u8; 4]) -> usize {
    image.pixels().filter(|pixel| pixel.0 == colour).count()
}

#[test]
fn colour_and_background_are_those_of_the_options() {
    let plain = formula(&json!({"scale": 4}));
    assert_eq!(plain.get_pixel(0, 0).0[3], 0, "there is no background by default");
    assert!(count(&plain, [0, 0, 0, 255]) > 20, "a formula is black by default");
    let coloured = formula(&json!({"scale": 4, "color": "#ff0000", "background": "#00ff00"}));
    assert_eq!(coloured.dimensions(), plain.dimensions());
    assert_eq!(coloured.get_pixel(0, 0).0, [0, 255, 0, 255]);
    assert!(count(&coloured, [255, 0, 0, 255]) > 20, "the formula is red");
    assert_eq!(count(&coloured, [0, 0, 0, 255]), 0);
    let on_nothing = formula(&json!({"scale": 4, "color": "#0000ff"}));
    assert_eq!(on_nothing.get_pixel(0, 0).0[3], 0);
    assert!(count(&on_nothing, [0, 0, 255, 255]) > 20, "the formula is blue");
}

/// Names of colours have the values that TeX gives them.
#[test]
fn a_named_colour_is_that_of_tex() {
    let options = json!({"scale": 4});
    for (name, colour) in
        [("blue", [0, 0, 255, 255]), ("green", [0, 255, 0, 255]), ("violet", [128, 0, 128, 255])]
    {
        let source = format!(r"\textcolor{{{name}}}{{\frac{{a}}{{b}}}}");
        let object = json!({"format": "latex", "source": source});
        let request =
            json!({"task": "render", "formats": ["png"], "object": object, "options": options});
        assert!(count(&pixels(&request, &|_| None), colour) > 20, "{name}");
    }
}

/// A wide picture in a square: `contain` leaves bars above and below, `cover` fills the square and cuts the sides.
#[test]
fn contain_shows_all_of_a_picture_and_cover_fills_the_thumbnail() {
    let mut wide = RgbaImage::from_pixel(400, 100, Rgba([255, 255, 255, 255]));
    for y in 0..100 {
        for x in 0..40 {
            wide.put_pixel(x, y, Rgba([255, 0, 0, 255]));
        }
    }
    let mut png = std::io::Cursor::new(Vec::new());
    wide.write_to(&mut png, image::ImageFormat::Png).unwrap();
    let png = png.into_inner();
    let thumbnail = |fit: &str| {
        let digest = "0".repeat(64);
        let request =
            json!({"task": "thumbnail", "digest": digest, "width": 80, "height": 80, "fit": fit});
        pixels(&request, &|_| Some(png.clone()))
    };
    let contain = thumbnail("contain");
    let cover = thumbnail("cover");
    assert_eq!((contain.dimensions(), cover.dimensions()), ((80, 80), (80, 80)));
    assert_ne!(contain.get_pixel(60, 2), &Rgba([255, 255, 255, 255]), "above the picture");
    assert_eq!(contain.get_pixel(2, 40).0, [255, 0, 0, 255], "the left side is shown");
    assert_eq!(cover.get_pixel(60, 2).0, [255, 255, 255, 255], "filled up to the border");
    assert_eq!(count(&cover, [255, 0, 0, 255]), 0, "the left side is cut off");
}
